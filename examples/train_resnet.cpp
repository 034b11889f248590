// Trains a ResNet on images, data-parallel over the ranks that mpirun starts:
//
//     mpirun -np 2 build/bin/train_resnet --amp bf16
//
// on images that it draws itself, or by --data on a folder of IDX files such as MNIST's. Large
// batches want LARS and a warm-up: --global-batch 1024 --optimizer lars --lr 4 --warmup 100.

#include <iostream>

#include <lockstep/lockstep.hpp>

#include "support/command_line.hpp"
#include "support/image_training.hpp"
#include "support/mnist_files.hpp"

namespace ls = lockstep;

namespace {

struct Options {
  std::filesystem::path data;
  std::int64_t images = 4096, size = 32, classes = 10, crop = 4;
  bool no_mirror = false;
  std::int64_t depth = 18, width = 64;
  examples::ImageTrainingOptions training{
      .epochs = 5,
      .warmup = 20,
      .optimizer = {
          .name = "sgd", .lr = 0.05, .weight_decay = 5e-4, .momentum = 0.9, .decay_all = false}};
};

void add_options(CLI::App& app, Options& o) {
  const auto positive = examples::whole_number(1), count = examples::whole_number(0);
  app.add_option("--data", o.data, "Folder of IDX files named as MNIST's; default: drawn images")
      ->check(CLI::ExistingDirectory);
  app.add_option("--images", o.images, "Drawn images to train with")->check(positive);
  app.add_option("--size", o.size, "Their height and width")->check(examples::whole_number(8, 512));
  app.add_option("--classes", o.classes, "Their kinds; those of --data are 10")
      ->check(examples::whole_number(2, 10))
      ->excludes("--data");
  app.add_option("--crop", o.crop, "Pixels around an image from which it is cut anew; 0: whole")
      ->check(count);
  app.add_flag("--no-mirror", o.no_mirror, "Leave all images as they are, not half of them");
  app.add_option("--depth", o.depth, "Layers: 18, 34 or 50")->check(CLI::IsMember({18, 34, 50}));
  app.add_option("--width", o.width, "Channels of the first stage")->check(positive);
  examples::add_image_training_options(app, o.training);
  app.add_option("--momentum", o.training.optimizer.momentum, "That of sgd, lars and rmsprop")
      ->check(examples::below_one());
  app.add_option("--weight-decay", o.training.optimizer.weight_decay, "Of all but biases and norms")
      ->check(examples::not_negative());
  app.add_option("--warmup", o.training.warmup, "Steps of linear warm-up")->check(count);
}

using Model = ls::models::ResNet;

examples::ImageSets image_sets(const Options& o) {
  if (o.data.empty())
    return examples::generate_images(o.images, o.size, o.classes, o.training.seed);
  return examples::read_mnist(o.data);
}

ls::nn::ModulePtr<Model> make_model(const Options& o) {
  ls::manual_seed(o.training.seed);
  const auto depth = o.depth == 18   ? Model::Depth::d18
                     : o.depth == 34 ? Model::Depth::d34
                                     : Model::Depth::d50;
  return ls::nn::make<Model>(
      depth,
      ls::models::ResNetOptions{.num_classes = o.classes, .in_channels = 1, .width = o.width});
}

int run(ls::Session& session, CLI::App& app, const Options& o) {
  const examples::ImageSets sets = image_sets(o);
  examples::check_same_training(*session.world(), app, sets);
  const auto model = make_model(o);
  model->to(session.device());
  ls::DistributedDataParallel replica(model, session.world());
  auto batches = examples::training_batches(
      examples::CroppedImages(sets.train, o.crop, !o.no_mirror), o.training, session);
  const std::string& amp = o.training.amp;
  if (session.is_main())
    std::cout << "ResNet-" << o.depth << " with " << model->parameter_count() << " parameters, "
              << sets.train.size() << " images" << (amp == "none" ? "" : ", products in " + amp)
              << ", " << session.size() << " rank(s) on " << session.device() << std::endl;
  // Images lie in memory pixel by pixel, all channels of a pixel together, and so does all that
  // convolutions make of them.
  return examples::train_images(
      session, replica, batches, sets.test,
      [&](std::span<const ls::Tensor> in) {
        return ls::cross_entropy(replica(in[0].channels_last()), in[1]);
      },
      o.training);
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a ResNet on images, data-parallel", "train_resnet");
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
