// libtorch's MNIST example, ported: one process, the same network, optimizer and output.
//
//     build/bin/mnist --data folder/with/idx/files
//
// train_mnist is the same task with several ranks, validation and saved weights.

#include <iomanip>
#include <iostream>

#include <lockstep/lockstep.hpp>

#include "support/command_line.hpp"
#include "support/mnist_files.hpp"

namespace ls = lockstep;
using ls::Tensor;

namespace {

struct Net : ls::nn::Module {
  ls::nn::Child<ls::nn::Conv2d> conv1{this, "conv1", 1, 10, 5};
  ls::nn::Child<ls::nn::Conv2d> conv2{this, "conv2", 10, 20, 5};
  ls::nn::Child<ls::nn::Dropout2d> conv2_drop{this, "conv2_drop"};
  ls::nn::Child<ls::nn::Linear> fc1{this, "fc1", 320, 50};
  ls::nn::Child<ls::nn::Linear> fc2{this, "fc2", 50, 10};

  Tensor forward(Tensor x) const {
    x = ls::relu(ls::max_pool2d(conv1(x), {.kernel = 2}));
    x = ls::relu(ls::max_pool2d(conv2_drop(conv2(x)), {.kernel = 2}));
    x = x.reshape({-1, 320});
    x = ls::relu(fc1(x));
    x = ls::dropout(x, /*p=*/0.5, /*training=*/is_training());
    x = fc2(x);
    return ls::log_softmax(x, /*dim=*/1);
  }
};

using Model = ls::nn::ModulePtr<Net>;
using Loader = ls::data::DataLoader<ls::data::ImageDataset>;

struct Options {
  std::filesystem::path data;
  std::int64_t epochs = 10, batch = 64, test_batch = 1000, log_interval = 10;
  std::uint64_t seed = 1;
  std::string device = "auto";
};

void add_options(CLI::App& app, Options& o) {
  const auto positive = examples::whole_number(1);
  app.add_option("--data", o.data, "Folder of MNIST's IDX files, plain or gzip")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("--epochs", o.epochs, "Passes over the training images")->check(positive);
  app.add_option("--batch", o.batch, "Images a step")->check(positive);
  app.add_option("--log-interval", o.log_interval, "Steps between two lines")->check(positive);
  app.add_option("--seed", o.seed, "Seed of weights, order and dropout");
  app.add_option("--device", o.device, "auto, cpu or cuda");
}

void train(std::int64_t epoch, const Model& model, ls::Device device, Loader& loader,
           ls::optim::Optimizer& optimizer, std::int64_t log_interval) {
  model->train();
  std::int64_t batches = 0, seen = 0;
  for (const auto& batch : loader) {
    const Tensor data = batch.images.to(device), targets = batch.labels.to(device);
    optimizer.zero_grad();
    const Tensor loss = ls::nll_loss(model(data), targets);
    loss.backward();
    optimizer.step();
    seen += targets.size(0);
    if (batches++ % log_interval == 0)
      std::cout << "Train epoch " << epoch << " [" << std::setw(5) << seen << '/'
                << loader.dataset().size() << "] loss " << std::fixed << std::setprecision(4)
                << loss.item() << std::endl;
  }
}

void test(const Model& model, ls::Device device, Loader& loader) {
  const ls::NoGradGuard no_grad;
  model->eval();
  double loss = 0, correct = 0;
  for (const auto& batch : loader) {
    const Tensor data = batch.images.to(device), targets = batch.labels.to(device);
    const Tensor output = model(data);
    loss += ls::nll_loss(output, targets, ls::Reduction::sum).item();
    correct += ls::eq(ls::argmax(output, 1), targets).sum().item();
  }
  const auto size = static_cast<double>(loader.dataset().size());
  std::cout << "Test set: average loss " << std::fixed << std::setprecision(4) << loss / size
            << " | accuracy " << std::setprecision(3) << correct / size << std::endl;
}

int run(ls::Session& session, const Options& o) {
  LOCKSTEP_CHECK(session.size() == 1, InvalidArgument,
                 "mnist is one process; train_mnist runs on several ranks");
  ls::manual_seed(o.seed);
  const ls::Device device = session.device();
  auto model = ls::nn::make<Net>();
  model->to(device);
  const examples::ImageSets files = examples::read_mnist(o.data);
  Loader train_loader(files.train, ls::data::RandomSampler(files.train.size(), o.seed),
                      {.batch_size = o.batch});
  Loader test_loader(files.test, ls::data::SequentialSampler(files.test.size()),
                     {.batch_size = o.test_batch});
  ls::optim::SGD optimizer(model->named_parameters(), {.lr = 0.01, .momentum = 0.5});
  for (std::int64_t epoch = 1; epoch <= o.epochs; ++epoch) {
    train(epoch, model, device, train_loader, optimizer, o.log_interval);
    test(model, device, test_loader);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("libtorch's MNIST example on lockstep", "mnist");
  add_options(app, options);
  examples::parse(app, argc, argv);
  return ls::Session::run(argc, argv, [&](ls::Session& session) { return run(session, options); },
                          {.device = options.device});
} catch (const examples::Exit& exit) {
  return exit.code;
}
