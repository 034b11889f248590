// Trains a small convolutional network on MNIST, data-parallel over the ranks that mpirun starts:
//
//     mpirun -np 2 build/bin/train_mnist --data folder/with/idx/files
//
// Where only the 10,000 test images are there, the first 8,000 train and the others test.

#include <iostream>
#include <optional>

#include <lockstep/lockstep.hpp>

#include "support/captured_steps.hpp"
#include "support/checkpoints.hpp"
#include "support/command_line.hpp"
#include "support/image_sets.hpp"
#include "support/late_report.hpp"
#include "support/mixed_precision.hpp"
#include "support/mnist_files.hpp"
#include "support/optimizers.hpp"
#include "support/progress.hpp"
#include "support/same_options.hpp"
#include "support/step_log.hpp"
#include "support/step_memory.hpp"

namespace ls = lockstep;
namespace fs = std::filesystem;
using ls::Tensor;

namespace {

struct Options {
  fs::path data, log, save;
  std::int64_t epochs = 3, global_batch = 64, steps = 0;
  examples::OptimizerChoice optimizer{.lr = 2e-3};
  std::uint64_t seed = 1;
  std::string device = "auto", amp = "none";
  int threads = 0, workers = 1;
  bool capture = false;
  examples::MemoryOptions memory;
  examples::CheckpointOptions checkpoints;
};

void add_options(CLI::App& app, Options& o) {
  const auto positive = examples::whole_number(1);
  app.add_option("--data", o.data, "Folder of MNIST's IDX files, plain or gzip")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("--epochs", o.epochs, "Passes over the training images")->check(positive);
  app.add_option("--steps", o.steps, "Stop after this many steps; 0: no limit")
      ->check(examples::whole_number(0));
  app.add_option("--global-batch", o.global_batch, "Images a step, over all ranks")
      ->check(positive);
  add_optimizer_options(app, o.optimizer);
  app.add_option("--lr", o.optimizer.lr, "Peak learning rate; half a cosine takes it to 0")
      ->check(examples::not_negative());
  app.add_option("--seed", o.seed, "Seed of weights, order and dropout");
  app.add_option("--device", o.device, "auto, cpu or cuda");
  examples::add_amp_option(app, o.amp);
  examples::add_capture_option(app, o.capture);
  app.add_option("--threads", o.threads, "CPU threads a rank; 0: its share of the cores")
      ->check(examples::whole_number(0, 4096));
  app.add_option("--workers", o.workers, "Threads that prepare batches")
      ->check(examples::whole_number(0, 256));
  app.add_option("--save", o.save, "Write the trained weights here (safetensors)")
      ->check(examples::writable());
  app.add_option("--log", o.log, "Write one JSON object a step here")->check(examples::writable());
  examples::add_memory_options(app, o.memory);
  examples::add_checkpoint_options(app, o.checkpoints);
}

using Model = ls::models::SmallCnn;
using Replica = ls::DistributedDataParallel<Model>;
using Loader = ls::data::DataLoader<ls::data::ImageDataset>;

/// Mean loss over this rank's part of a batch.
Tensor batch_loss(Replica& replica, const ls::data::ImageBatch& batch, const Options& o) {
  const ls::amp::Autocast mixed = examples::autocast(o.amp);
  return ls::cross_entropy(replica(batch.images), batch.labels);
}

int run(ls::Session& session, CLI::App& app, const Options& o) {
  examples::check_same_options(*session.world(), app,
                               {.own = {"--data", "--device", "--threads", "--workers", "--save",
                                        "--log", "--pool", "--memory-snapshot"}});
  const examples::ImageSets data = examples::read_mnist(o.data);
  examples::check_same_images(*session.world(), data);
  ls::manual_seed(o.seed + static_cast<std::uint64_t>(session.rank()));  // dropout differs by rank
  auto model = ls::models::small_cnn();
  model->to(session.device());
  Replica replica(model, session.world());
  const auto optimizer = examples::make_optimizer(replica.named_parameters(), o.optimizer);
  ls::amp::GradScaler scaler = examples::make_scaler(o.amp);
  auto average = examples::make_average(replica.named_parameters(), o.optimizer);
  Loader loader(data.train, ls::data::RandomSampler(data.train.size(), o.seed),
                {.batch_size = o.global_batch,
                 .drop_last = true,
                 .rank = session.rank(),
                 .world_size = session.size(),
                 .num_workers = o.workers,
                 .device = session.device()});
  const std::int64_t all = o.epochs * loader.size();
  const std::int64_t steps = o.steps > 0 ? std::min(o.steps, all) : all;
  ls::optim::LRScheduler scheduler(*optimizer, ls::optim::CosineAnnealingLR{.iterations = steps});
  if (session.is_main())
    std::cout << model->parameter_count() << " parameters, " << data.train.size() << " images, "
              << session.size() << " rank(s) on " << session.device() << std::endl;
  examples::Checkpoints checkpoints(o.checkpoints, session);
  checkpoints.add_training(replica, *optimizer, scheduler, scaler, average);
  checkpoints.add("loader", loader);
  const std::int64_t first = checkpoints.resume();
  examples::Progress progress(steps, !session.is_main());
  examples::StepLog log;
  if (session.is_main() && !o.log.empty()) log = examples::StepLog(o.log, first > 0);

  examples::LateReport report([&](const examples::QueuedStep& done, double seconds) {
    const double mean = done.loss.item(), rate = static_cast<double>(o.global_batch) / seconds;
    log.write({{"step", static_cast<double>(done.number)},
               {"loss", mean},
               {"lr", done.lr},
               {"images_per_s", rate},
               {"ms", seconds * 1e3}});
    progress.show(done.number + 1, mean, rate, "images");
  });
  examples::StepMemory memory(o.memory, session, steps - first);
  examples::Steps make_step(
      [&](std::span<const Tensor> in) {
        const Tensor loss = batch_loss(replica, {in[0], in[1]}, o);
        const auto images = static_cast<double>(in[1].numel());  // ranks' parts may differ by one
        replica.backward(scaler.scale(loss), images);
        scaler.step(*optimizer);
        scaler.update();
        if (average) average->update();
        optimizer->zero_grad();
        const double share = images / static_cast<double>(o.global_batch);
        return std::vector{ls::parallel::all_reduce_async(loss.detach().to(ls::DType::f64) * share,
                                                          *session.world())
                               .wait()};
      },
      o.capture, session);
  std::int64_t step = first;
  for (std::int64_t epoch = first / loader.size(); epoch < o.epochs && step < steps; ++epoch) {
    report.restart();
    for (const auto& batch : loader) {
      memory.before_step(step - first);
      const double lr = optimizer->lr();
      const Tensor mean = make_step({batch.images, batch.labels})[0];
      scheduler.step();
      report.add({.number = step, .lr = lr, .loss = ls::HostCopy(mean)});
      memory.after_step(step - first);
      if (checkpoints.after_step(++step) || step == steps) break;
    }
    report.flush();
    if (checkpoints.is_stopped()) {
      checkpoints.finish(step);
      return examples::Checkpoints::exit_code;
    }
    std::optional<ls::optim::WeightAverage::Swapped> averaged;
    if (average) averaged.emplace(average->swap_in());
    const ls::amp::Autocast mixed = examples::autocast(o.amp);
    const double share = examples::accuracy(*model, data.test, session);
    if (!session.is_main()) continue;
    progress.finish();
    std::cout << "epoch " << epoch + 1 << ": test accuracy " << 100 * share << " %" << std::endl;
  }
  checkpoints.finish(steps);
  make_step.tell();
  if (session.is_main() && !o.save.empty()) {
    std::optional<ls::optim::WeightAverage::Swapped> averaged;
    if (average) averaged.emplace(average->swap_in());
    if (o.save.has_parent_path()) fs::create_directories(o.save.parent_path());
    ls::io::save_safetensors(o.save, model->state_dict());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a small convolutional network on MNIST, data-parallel", "train_mnist");
  add_options(app, options);
  examples::parse(app, argc, argv);
  examples::check_checkpoint_options(app, options.checkpoints);
  return ls::Session::run(argc, argv,
                          [&](ls::Session& session) { return run(session, app, options); },
                          {.device = options.device, .threads = options.threads});
} catch (const examples::Exit& exit) {
  return exit.code;
}
