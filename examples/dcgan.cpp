// libtorch's DCGAN example, ported: a generator learns to draw MNIST's digits against a
// discriminator (Radford, Metz and Chintala 2016).
//
//     build/bin/dcgan --data folder/with/idx/files --out checkpoints

#include <fstream>
#include <iomanip>
#include <iostream>

#include <lockstep/lockstep.hpp>

#include "support/command_line.hpp"
#include "support/mnist_files.hpp"

namespace ls = lockstep;
namespace nn = lockstep::nn;
using ls::Tensor;

namespace {

/// From noise [N, features, 1, 1] to images [N, 1, 28, 28] in [-1, 1].
struct Generator : nn::Module {
  explicit Generator(std::int64_t noise)
      : conv1(this, "conv1", {.in = noise, .out = 256, .kernel = 4, .bias = false}),
        batch_norm1(this, "batch_norm1", 256),
        conv2(this, "conv2",
              {.in = 256, .out = 128, .kernel = 3, .stride = 2, .padding = 1, .bias = false}),
        batch_norm2(this, "batch_norm2", 128),
        conv3(this, "conv3",
              {.in = 128, .out = 64, .kernel = 4, .stride = 2, .padding = 1, .bias = false}),
        batch_norm3(this, "batch_norm3", 64),
        conv4(this, "conv4",
              {.in = 64, .out = 1, .kernel = 4, .stride = 2, .padding = 1, .bias = false}) {}

  Tensor forward(Tensor x) const {
    x = ls::relu(batch_norm1(conv1(x)));
    x = ls::relu(batch_norm2(conv2(x)));
    x = ls::relu(batch_norm3(conv3(x)));
    return ls::tanh(conv4(x));
  }

  nn::Child<nn::ConvTranspose2d> conv1;
  nn::Child<nn::BatchNorm2d> batch_norm1;
  nn::Child<nn::ConvTranspose2d> conv2;
  nn::Child<nn::BatchNorm2d> batch_norm2;
  nn::Child<nn::ConvTranspose2d> conv3;
  nn::Child<nn::BatchNorm2d> batch_norm3;
  nn::Child<nn::ConvTranspose2d> conv4;
};

/// From images to the probability that each is real, [N, 1, 1, 1].
nn::ModulePtr<nn::Sequential> make_discriminator() {
  const auto halve = [](std::int64_t in, std::int64_t out) {
    return nn::make<nn::Conv2d>(
        {.in = in, .out = out, .kernel = 4, .stride = 2, .padding = 1, .bias = false});
  };
  const auto leaky = [] { return nn::make<nn::LeakyReLU>(0.2); };
  return nn::make<nn::Sequential>(
      halve(1, 64), leaky(),                                     // 14 x 14
      halve(64, 128), nn::make<nn::BatchNorm2d>(128), leaky(),   // 7 x 7
      halve(128, 256), nn::make<nn::BatchNorm2d>(256), leaky(),  // 3 x 3
      nn::make<nn::Conv2d>({.in = 256, .out = 1, .kernel = 3, .bias = false}),
      nn::make<nn::Sigmoid>());
}

struct Options {
  std::filesystem::path data, out = "dcgan";
  std::int64_t epochs = 30, steps = 0, batch = 64, noise = 100, checkpoint_every = 200,
               samples = 10;
  std::uint64_t seed = 1;
  std::string device = "auto";
};

void add_options(CLI::App& app, Options& o) {
  const auto positive = examples::whole_number(1);
  app.add_option("--data", o.data, "Folder of MNIST's IDX files, plain or gzip")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("--out", o.out, "Folder of checkpoints and samples")->check(examples::writable());
  app.add_option("--epochs", o.epochs, "Passes over the images")->check(positive);
  app.add_option("--steps", o.steps, "Stop after this many steps; 0: no limit")
      ->check(examples::whole_number(0));
  app.add_option("--batch", o.batch, "Images a step")->check(examples::whole_number(2));
  app.add_option("--noise", o.noise, "Features of the generator's input")->check(positive);
  app.add_option("--checkpoint-every", o.checkpoint_every, "Steps between two checkpoints")
      ->check(positive);
  app.add_option("--samples", o.samples, "Images drawn at each checkpoint")->check(positive);
  app.add_option("--seed", o.seed, "Seed of weights, order and noise");
  app.add_option("--device", o.device, "auto, cpu or cuda");
}

/// Images [N, 1, H, W] in [-1, 1] beside each other in one grey picture (PGM).
void write_picture(const std::filesystem::path& path, const Tensor& images) {
  const std::int64_t count = images.size(0), height = images.size(2), width = images.size(3);
  const Tensor row = images.to(ls::cpu).permute({1, 2, 0, 3}).reshape({height, count * width});
  const Tensor bytes = ls::clamp(row * 127.5 + 127.5, 0, 255).to(ls::DType::u8);
  std::ofstream file(path, std::ios::binary);
  file << "P5\n" << count * width << ' ' << height << "\n255\n";
  for (const std::uint8_t byte : bytes.flat<std::uint8_t>()) file.put(static_cast<char>(byte));
  LOCKSTEP_CHECK(file.flush(), Error, "cannot write ", path.string());
}

class Training {
 public:
  Training(const Options& options, ls::Device device)
      : options_(options),
        device_(device),
        generator_(nn::make<Generator>(options.noise)),
        discriminator_(make_discriminator()) {
    generator_->to(device);
    discriminator_->to(device);
  }

  void run(const ls::data::ImageDataset& images) {
    ls::data::DataLoader loader(
        images, ls::data::RandomSampler(images.size(), options_.seed),
        {.batch_size = options_.batch, .drop_last = true, .num_workers = 1});
    const ls::optim::AdamOptions adam{.lr = 2e-4, .beta1 = 0.5};
    ls::optim::Adam generator_optimizer(generator_->named_parameters("generator"), adam);
    ls::optim::Adam discriminator_optimizer(discriminator_->named_parameters("discriminator"),
                                            adam);
    std::int64_t step = 0, checkpoints = 0;
    for (std::int64_t epoch = 1; epoch <= options_.epochs; ++epoch) {
      for (const auto& batch : loader) {
        const Tensor fake = generator_(noise(options_.batch));
        const double discriminator_loss =
            train_discriminator(batch.images.to(device_), fake, discriminator_optimizer);
        const double generator_loss = train_generator(fake, generator_optimizer);
        ++step;
        const bool last = step == options_.steps;
        if (step % 10 == 0 || last)
          std::cout << "[" << epoch << '/' << options_.epochs << "][" << step << "] D_loss "
                    << std::fixed << std::setprecision(4) << discriminator_loss << " | G_loss "
                    << generator_loss << std::endl;
        if (step % options_.checkpoint_every == 0 || last) save(++checkpoints);
        if (last) return;
      }
    }
    save(++checkpoints);
  }

 private:
  Tensor noise(std::int64_t count) const {
    return ls::randn({count, options_.noise, 1, 1}).to(device_);
  }
  /// Real images shall give probabilities of 0.8 to 1, which keeps it from being too sure, and
  /// those of the generator 0.
  double train_discriminator(const Tensor& real, const Tensor& fake,
                             ls::optim::Optimizer& optimizer) const {
    discriminator_->zero_grad();
    const Tensor real_output = discriminator_(real);
    const Tensor real_labels = ls::rand(real_output.shape()).to(device_) * 0.2 + 0.8;
    const Tensor real_loss = ls::binary_cross_entropy(real_output, real_labels);
    real_loss.backward();
    const Tensor fake_output = discriminator_(fake.detach());
    const Tensor fake_labels = ls::zeros(fake_output.shape(), fake_output.options());
    const Tensor fake_loss = ls::binary_cross_entropy(fake_output, fake_labels);
    fake_loss.backward();
    optimizer.step();
    return real_loss.item() + fake_loss.item();
  }
  /// The discriminator shall take the generator's images for real.
  double train_generator(const Tensor& fake, ls::optim::Optimizer& optimizer) const {
    generator_->zero_grad();
    const Tensor output = discriminator_(fake);
    const Tensor labels = ls::ones(output.shape(), output.options());
    const Tensor loss = ls::binary_cross_entropy(output, labels);
    loss.backward();
    optimizer.step();
    return loss.item();
  }

  void save(std::int64_t number) const {
    std::filesystem::create_directories(options_.out);
    ls::io::save_safetensors(options_.out / "generator.safetensors", generator_->state_dict());
    ls::io::save_safetensors(options_.out / "discriminator.safetensors",
                             discriminator_->state_dict());
    const ls::NoGradGuard no_grad;
    generator_->eval();
    const auto picture = options_.out / ("samples-" + std::to_string(number) + ".pgm");
    write_picture(picture, generator_(noise(options_.samples)));
    generator_->train();
    std::cout << "-> checkpoint " << number << ", " << picture.string() << std::endl;
  }

  Options options_;
  ls::Device device_;
  nn::ModulePtr<Generator> generator_;
  nn::ModulePtr<nn::Sequential> discriminator_;
};

int run(ls::Session& session, const Options& o) {
  LOCKSTEP_CHECK(session.size() == 1, InvalidArgument, "dcgan is one process");
  ls::manual_seed(o.seed);
  // Pixels from -1 to 1, as the generator's tanh gives them.
  const auto images = examples::read_mnist(o.data, {.mean = 0.5F, .deviation = 0.5F}).train;
  Training(o, session.device()).run(images);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("libtorch's DCGAN example on lockstep", "dcgan");
  add_options(app, options);
  examples::parse(app, argc, argv);
  return ls::Session::run(argc, argv, [&](ls::Session& session) { return run(session, options); },
                          {.device = options.device});
} catch (const examples::Exit& exit) {
  return exit.code;
}
