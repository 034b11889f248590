// libtorch's MNIST example, ported: one process, the same network, optimizer and output.
//
//     build/bin/mnist --data folder/with/idx/files
//
// train_mnist is the same task with several ranks, validation and saved weights.

#include <algorithm>
#include <iomanip>
#include <iostream>

#include <lockstep/lockstep.hpp>

#include "support/command_line.hpp"
#include "support/loop_options.hpp"
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

using Loader = ls::data::DataLoader<ls::data::ImageDataset>;

struct Options {
  std::filesystem::path data;
  std::int64_t epochs = 10, batch = 64, log_interval = 10;
  std::uint64_t seed = 1;
  std::string device = "auto";
  examples::LoopChoice loop;
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
  examples::add_loop_options(app, o.loop);
}

/// @return the average loss.
double test(Net& model, Loader& loader) {
  model.eval();
  double loss = 0, correct = 0;
  for (const auto& batch : loader) {
    const Tensor output = model.forward(batch.images);
    loss += ls::nll_loss(output, batch.labels, ls::Reduction::sum).item();
    correct += ls::eq(ls::argmax(output, 1), batch.labels).sum().item();
  }
  model.train();
  const auto size = static_cast<double>(loader.dataset().size());
  std::cout << "Test set: average loss " << std::fixed << std::setprecision(4) << loss / size
            << " | accuracy " << std::setprecision(3) << correct / size << std::endl;
  return loss / size;
}

int run(ls::Session& session, const Options& o) {
  LOCKSTEP_CHECK(session.size() == 1, InvalidArgument,
                 "mnist is one process; train_mnist runs on several ranks");
  ls::manual_seed(o.seed);
  auto model = ls::nn::make<Net>();
  model->to(session.device());
  const examples::ImageSets files = examples::read_mnist(o.data);
  Loader train(files.train, ls::data::RandomSampler(files.train.size(), o.seed),
               {.batch_size = o.batch, .device = session.device()});
  Loader tests(files.test, ls::data::SequentialSampler(files.test.size()),
               {.batch_size = 1000, .device = session.device()});
  ls::optim::SGD optimizer(model->named_parameters(), {.lr = 0.01, .momentum = 0.5});
  ls::train::Loop loop(session, o.loop.options(/*steps=*/0, o.epochs));
  loop.add("model", model);
  loop.add("optimizer", optimizer);
  loop.evaluate = [&] { return test(*model, tests); };
  loop.on_step = [&](const ls::train::StepReport& step) {
    const std::int64_t batch = (step.step - 1) % train.size(), images = files.train.size();
    if (batch % o.log_interval != 0) return;
    std::cout << "Train epoch " << (step.step - 1) / train.size() + 1 << " [" << std::setw(5)
              << std::min((batch + 1) * o.batch, images) << '/' << images << "] loss " << std::fixed
              << std::setprecision(4) << step.loss << std::endl;
  };
  return loop.run(train, [&](const auto& batch) {
    optimizer.zero_grad();
    const Tensor loss = ls::nll_loss(model(batch.images), batch.labels);
    loss.backward();
    optimizer.step();
    return loss;
  });
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("libtorch's MNIST example on lockstep", "mnist");
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
