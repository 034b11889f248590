// Trains a small convolutional network on MNIST, data-parallel over the ranks that mpirun starts:
//
//     mpirun -np 2 build/bin/train_mnist --data folder/with/idx/files
//
// Where only the 10,000 test images are there, the first 8,000 train and the others test.

#include <iostream>

#include <lockstep/lockstep.hpp>

#include "support/command_line.hpp"
#include "support/image_training.hpp"
#include "support/mnist_files.hpp"

namespace ls = lockstep;

namespace {

struct Options {
  std::filesystem::path data;
  examples::ImageTrainingOptions training{.optimizer = {.lr = 2e-3}};
};

void add_options(CLI::App& app, Options& o) {
  app.add_option("--data", o.data, "Folder of MNIST's IDX files, plain or gzip")
      ->required()
      ->check(CLI::ExistingDirectory);
  examples::add_image_training_options(app, o.training);
  examples::add_capture_option(app, o.training.capture);
}

int run(ls::Session& session, CLI::App& app, const Options& o) {
  const examples::ImageSets sets = examples::read_mnist(o.data);
  examples::check_same_training(*session.world(), app, sets);
  // Dropout differs by rank.
  ls::manual_seed(o.training.seed + static_cast<std::uint64_t>(session.rank()));
  auto model = ls::models::small_cnn();
  model->to(session.device());
  ls::DistributedDataParallel replica(model, session.world());
  auto batches = examples::training_batches(sets.train, o.training, session);
  if (session.is_main())
    std::cout << model->parameter_count() << " parameters, " << sets.train.size() << " images, "
              << session.size() << " rank(s) on " << session.device() << std::endl;
  return examples::train_images(
      session, replica, batches, sets.test,
      [&](std::span<const ls::Tensor> in) { return ls::cross_entropy(replica(in[0]), in[1]); },
      o.training);
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a small convolutional network on MNIST, data-parallel", "train_mnist");
  add_options(app, options);
  examples::parse(app, argc, argv);
  examples::check_loop_options(app, options.training.loop);
  return ls::Session::run(argc, argv, examples::in_one_line([&](ls::Session& session) {
                            return run(session, app, options);
                          }),
                          {.device = options.training.device, .threads = options.training.threads});
} catch (const examples::Exit& exit) {
  return exit.code;
}
