// libtorch's DCGAN example, ported: a generator learns to draw MNIST's digits against a
// discriminator (Radford, Metz and Chintala 2016).
//
//     build/bin/dcgan --data folder/with/idx/files --out samples --checkpoint-dir runs/dcgan

#include <fstream>
#include <iomanip>
#include <iostream>

#include <lockstep/lockstep.hpp>

#include "support/command_line.hpp"
#include "support/loop_options.hpp"
#include "support/mnist_files.hpp"

namespace ls = lockstep;
namespace nn = lockstep::nn;
using ls::Tensor;

namespace {

/// From noise [N, features, 1, 1] to images [N, 1, 28, 28] in [-1, 1].
struct Generator : nn::Module {
  explicit Generator(std::int64_t noise)
      : conv1(this, "conv1", {.in = noise, .out = 256, .kernel = 4, .bias = false}) {}

  Tensor forward(Tensor x) const {
    x = ls::relu(batch_norm1(conv1(x)));
    x = ls::relu(batch_norm2(conv2(x)));
    x = ls::relu(batch_norm3(conv3(x)));
    return ls::tanh(conv4(x));
  }

  static nn::ConvTranspose2dOptions twice(std::int64_t in, std::int64_t out, std::int64_t kernel) {
    return {.in = in, .out = out, .kernel = kernel, .stride = 2, .padding = 1, .bias = false};
  }
  nn::Child<nn::ConvTranspose2d> conv1;
  nn::Child<nn::BatchNorm2d> batch_norm1{this, "batch_norm1", 256};
  nn::Child<nn::ConvTranspose2d> conv2{this, "conv2", twice(256, 128, 3)};
  nn::Child<nn::BatchNorm2d> batch_norm2{this, "batch_norm2", 128};
  nn::Child<nn::ConvTranspose2d> conv3{this, "conv3", twice(128, 64, 4)};
  nn::Child<nn::BatchNorm2d> batch_norm3{this, "batch_norm3", 64};
  nn::Child<nn::ConvTranspose2d> conv4{this, "conv4", twice(64, 1, 4)};
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
  std::int64_t epochs = 30, steps = 0, batch = 64, noise = 100, sample_every = 200, samples = 10;
  std::uint64_t seed = 1;
  std::string device = "auto";
  examples::LoopChoice loop;
};

void add_options(CLI::App& app, Options& o) {
  const auto positive = examples::whole_number(1);
  app.add_option("--data", o.data, "Folder of MNIST's IDX files, plain or gzip")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("--out", o.out, "Folder of samples, and of both networks at the end")
      ->check(examples::writable_folder());
  app.add_option("--epochs", o.epochs, "Passes over the images")->check(positive);
  app.add_option("--steps", o.steps, "Stop after this many steps; 0: no limit")
      ->check(examples::whole_number(0));
  app.add_option("--batch", o.batch, "Images a step")->check(examples::whole_number(2));
  app.add_option("--noise", o.noise, "Features of the generator's input")->check(positive);
  app.add_option("--sample-every", o.sample_every, "Steps from one picture of samples to the next")
      ->check(positive);
  app.add_option("--samples", o.samples, "Images in a picture")->check(positive);
  app.add_option("--seed", o.seed, "Seed of weights, order and noise");
  app.add_option("--device", o.device, "auto, cpu or cuda");
  examples::add_checkpoint_options(app, o.loop);
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

/// Both networks, and how each of them learns.
struct Gan {
  Gan(const Options& options, ls::Device where)
      : device(where),
        noise_features(options.noise),
        generator(nn::make<Generator>(options.noise)) {
    generator->to(device);
    discriminator->to(device);
  }

  Tensor noise(std::int64_t count, ls::Generator& random = ls::default_generator()) const {
    return ls::randn({count, noise_features, 1, 1}, {}, random).to(device);
  }

  /// Real images shall give probabilities of 0.8 to 1, which keeps it from being too sure, and
  /// those of the generator 0. @return the loss.
  Tensor train_discriminator(const Tensor& real, const Tensor& fake) {
    discriminator->zero_grad();
    const Tensor real_output = discriminator(real), fake_output = discriminator(fake.detach());
    const Tensor real_labels = ls::rand(real_output.shape()).to(device) * 0.2 + 0.8;
    const Tensor fake_labels = ls::zeros(fake_output.shape(), fake_output.options());
    const Tensor loss = ls::binary_cross_entropy(real_output, real_labels) +
                        ls::binary_cross_entropy(fake_output, fake_labels);
    loss.backward();
    discriminator_optimizer.step();
    return loss;
  }

  /// The discriminator shall take the generator's images for real. @return the loss.
  Tensor train_generator(const Tensor& fake) {
    generator->zero_grad();
    const Tensor output = discriminator(fake);
    const Tensor labels = ls::ones(output.shape(), output.options());
    const Tensor loss = ls::binary_cross_entropy(output, labels);
    loss.backward();
    generator_optimizer.step();
    return loss;
  }

  ls::Device device;
  std::int64_t noise_features;
  nn::ModulePtr<Generator> generator;
  nn::ModulePtr<nn::Sequential> discriminator = make_discriminator();
  ls::optim::AdamOptions adam{.lr = 2e-4, .beta1 = 0.5};
  ls::optim::Adam generator_optimizer{generator->named_parameters(), adam};
  ls::optim::Adam discriminator_optimizer{discriminator->named_parameters(), adam};
};

/// Images from the same noise each time.
void write_samples(const Gan& gan, const Options& o, std::int64_t step) {
  const ls::NoGradGuard no_grad;
  ls::Generator random(o.seed);
  gan.generator->eval();
  const auto picture = o.out / ("samples-" + std::to_string(step) + ".pgm");
  write_picture(picture, gan.generator(gan.noise(o.samples, random)));
  gan.generator->train();
  std::cout << "-> " << picture.string() << std::endl;
}

int run(ls::Session& session, const Options& o) {
  LOCKSTEP_CHECK(session.size() == 1, InvalidArgument, "dcgan is one process");
  ls::manual_seed(o.seed);
  // Pixels from -1 to 1, as the generator's tanh gives them.
  const auto images = examples::read_mnist(o.data, {.mean = 0.5F, .deviation = 0.5F}).train;
  ls::data::DataLoader loader(
      images, ls::data::RandomSampler(images.size(), o.seed),
      {.batch_size = o.batch, .drop_last = true, .num_workers = 1, .device = session.device()});
  Gan gan(o, session.device());
  std::filesystem::create_directories(o.out);
  ls::train::Loop loop(session, o.loop.options(o.steps, o.epochs));
  loop.add("generator", gan.generator);
  loop.add("generator_optimizer", gan.generator_optimizer);
  loop.add("discriminator", gan.discriminator);
  loop.add("discriminator_optimizer", gan.discriminator_optimizer);
  const int code = loop.run(loader, [&](const auto& batch) {
    const std::int64_t step = loop.steps() + 1;
    const Tensor fake = gan.generator(gan.noise(o.batch));
    const Tensor discriminator_loss = gan.train_discriminator(batch.images, fake);
    const Tensor generator_loss = gan.train_generator(fake);
    if (step % 10 == 0 || step == loop.all_steps())
      std::cout << "[" << (step - 1) / loader.size() + 1 << '/' << o.epochs << "][" << step
                << "] D_loss " << std::fixed << std::setprecision(4) << discriminator_loss.item()
                << " | G_loss " << generator_loss.item() << std::endl;
    if (step % o.sample_every == 0) write_samples(gan, o, step);
    return generator_loss;
  });
  if (code == ls::StopRequest::exit_code) return code;
  if (loop.steps() % o.sample_every != 0) write_samples(gan, o, loop.steps());
  ls::io::save_safetensors(o.out / "generator.safetensors", gan.generator->state_dict());
  ls::io::save_safetensors(o.out / "discriminator.safetensors", gan.discriminator->state_dict());
  return code;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("libtorch's DCGAN example on lockstep", "dcgan");
  add_options(app, options);
  examples::parse(app, argc, argv);
  examples::check_loop_options(app, options.loop);
  return ls::Session::run(argc, argv, examples::in_one_line([&](ls::Session& session) {
                            return run(session, options);
                          }),
                          {.device = options.device});
} catch (const examples::Exit& exit) {
  return exit.code;
}
