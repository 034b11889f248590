// Trains a ResNet on images, data-parallel over the ranks that mpirun starts:
//
//     mpirun -np 2 build/bin/train_resnet --amp bf16
//
// on images that it draws itself, or by --data on a folder of IDX files such as MNIST's. Large
// batches want LARS and a warm-up: --global-batch 1024 --optimizer lars --lr 4 --warmup 100.

#include <algorithm>
#include <iostream>

#include <lockstep/lockstep.hpp>

#include "support/command_line.hpp"
#include "support/image_sets.hpp"
#include "support/loop_options.hpp"
#include "support/mixed_precision.hpp"
#include "support/mnist_files.hpp"
#include "support/optimizers.hpp"
#include "support/same_options.hpp"
#include "support/step_memory.hpp"
#include "support/training_report.hpp"

namespace ls = lockstep;
namespace fs = std::filesystem;

namespace {

struct Options {
  fs::path data, log, save;
  std::int64_t images = 4096, size = 32, classes = 10, crop = 4;
  bool no_mirror = false;
  std::int64_t depth = 18, width = 64;
  std::int64_t epochs = 5, global_batch = 64, steps = 0, warmup = 20;
  examples::OptimizerChoice optimizer{
      .name = "sgd", .lr = 0.05, .weight_decay = 5e-4, .momentum = 0.9, .decay_all = false};
  std::uint64_t seed = 1;
  std::string device = "auto", amp = "none";
  int threads = 0, workers = 1;
  examples::MemoryOptions memory;
  examples::LoopChoice loop;
};

void add_options(CLI::App& app, Options& o) {
  const auto positive = examples::whole_number(1), count = examples::whole_number(0);
  const auto not_negative = examples::not_negative();
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
  app.add_option("--epochs", o.epochs, "Passes over the training images")->check(positive);
  app.add_option("--steps", o.steps, "Stop after this many steps; 0: no limit")->check(count);
  app.add_option("--global-batch", o.global_batch, "Images a step, over all ranks")
      ->check(positive);
  add_optimizer_options(app, o.optimizer);
  app.add_option("--lr", o.optimizer.lr, "Peak learning rate; half a cosine takes it to 0")
      ->check(not_negative);
  app.add_option("--momentum", o.optimizer.momentum, "That of sgd, lars and rmsprop")
      ->check(examples::below_one());
  app.add_option("--weight-decay", o.optimizer.weight_decay, "Of all but biases and norms")
      ->check(not_negative);
  app.add_option("--warmup", o.warmup, "Steps of linear warm-up")->check(count);
  app.add_option("--seed", o.seed, "Seed of weights, order and cuts");
  app.add_option("--device", o.device, "auto, cpu or cuda");
  examples::add_amp_option(app, o.amp);
  app.add_option("--threads", o.threads, "CPU threads a rank; 0: its share of the cores")
      ->check(examples::whole_number(0, 4096));
  app.add_option("--workers", o.workers, "Threads that prepare batches")
      ->check(examples::whole_number(0, 256));
  app.add_option("--save", o.save, "Write the trained weights here (safetensors)")
      ->check(examples::writable());
  app.add_option("--log", o.log, "Write one JSON object a step here")->check(examples::writable());
  examples::add_memory_options(app, o.memory);
  examples::add_loop_options(app, o.loop);
}

using Model = ls::models::ResNet;

examples::ImageSets image_sets(const Options& o) {
  if (o.data.empty()) return examples::generate_images(o.images, o.size, o.classes, o.seed);
  return examples::read_mnist(o.data);
}

ls::nn::ModulePtr<Model> make_model(const Options& o) {
  ls::manual_seed(o.seed);
  const auto depth = o.depth == 18   ? Model::Depth::d18
                     : o.depth == 34 ? Model::Depth::d34
                                     : Model::Depth::d50;
  return ls::nn::make<Model>(
      depth,
      ls::models::ResNetOptions{.num_classes = o.classes, .in_channels = 1, .width = o.width});
}

int run(ls::Session& session, CLI::App& app, const Options& o) {
  examples::check_same_options(*session.world(), app,
                               {.own = {"--data", "--device", "--threads", "--workers", "--save",
                                        "--log", "--pool", "--memory-snapshot"}});
  const examples::ImageSets sets = image_sets(o);
  examples::check_same_images(*session.world(), sets);
  const auto model = make_model(o);
  model->to(session.device());
  ls::DistributedDataParallel replica(model, session.world());
  ls::data::DataLoader loader(examples::CroppedImages(sets.train, o.crop, !o.no_mirror),
                              ls::data::RandomSampler(sets.train.size(), o.seed),
                              {.batch_size = o.global_batch,
                               .drop_last = true,
                               .rank = session.rank(),
                               .world_size = session.size(),
                               .num_workers = o.workers,
                               .device = session.device()});
  const std::int64_t all = o.epochs * loader.size();
  const std::int64_t steps = o.steps > 0 ? std::min(o.steps, all) : all;
  const auto optimizer = examples::make_optimizer(replica.named_parameters(), o.optimizer);
  ls::optim::LRScheduler scheduler(
      *optimizer,
      examples::after_warmup(
          ls::optim::CosineAnnealingLR{.iterations = std::max<std::int64_t>(1, steps - o.warmup)},
          o.warmup));
  ls::amp::GradScaler scaler = examples::make_scaler(o.amp);
  auto average = examples::make_average(replica.named_parameters(), o.optimizer);
  if (session.is_main())
    std::cout << "ResNet-" << o.depth << " with " << model->parameter_count() << " parameters, "
              << sets.train.size() << " images" << (o.amp == "none" ? "" : ", products in " + o.amp)
              << ", " << session.size() << " rank(s) on " << session.device() << std::endl;

  // Images lie in memory pixel by pixel, all channels of a pixel together, and so does all that
  // convolutions make of them.
  ls::train::Step step(replica, *optimizer,
                       [&](std::span<const ls::Tensor> in) {
                         return ls::cross_entropy(replica(in[0].channels_last()), in[1]);
                       },
                       {.scheduler = &scheduler,
                        .scaler = &scaler,
                        .average = average ? &*average : nullptr,
                        .autocast = examples::autocast(o.amp)});
  ls::train::Loop loop(session, o.loop.options(steps));
  loop.add(step);
  loop.evaluate = [&] {
    const auto scope = step.evaluation();
    return 1 - examples::accuracy(*model, sets.test, session);
  };
  examples::TrainingReport report(loop, session,
                                  {.unit = "images",
                                   .units_a_step = o.global_batch,
                                   .epoch_steps = loader.size(),
                                   .log = o.log,
                                   .skips_overflows = scaler.is_enabled(),
                                   .describe = examples::test_accuracy});
  examples::StepMemory memory(o.memory, session, loop);
  const int code =
      loop.run(loader, [&](auto& batch) { return memory([&] { return step(batch); }); });
  report.finish(step);
  if (code != 0 || !session.is_main() || o.save.empty()) return code;
  const auto scope = step.evaluation();
  if (o.save.has_parent_path()) fs::create_directories(o.save.parent_path());
  ls::io::save_safetensors(o.save, model->state_dict());
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a ResNet on images, data-parallel", "train_resnet");
  add_options(app, options);
  examples::parse(app, argc, argv);
  examples::check_loop_options(app, options.loop);
  return ls::Session::run(argc, argv,
                          [&](ls::Session& session) { return run(session, app, options); },
                          {.device = options.device, .threads = options.threads});
} catch (const examples::Exit& exit) {
  return exit.code;
}
