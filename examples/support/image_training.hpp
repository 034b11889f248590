#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include <lockstep/lockstep.hpp>

#include "support/image_sets.hpp"
#include "support/loop_options.hpp"
#include "support/mixed_precision.hpp"
#include "support/optimizers.hpp"
#include "support/step_memory.hpp"
#include "support/training_report.hpp"

/// @file
/// How the programs that train on labelled images do so.

namespace examples {

/// What their command lines say alike.
struct ImageTrainingOptions {
  std::filesystem::path log = {}, save = {};
  std::int64_t epochs = 3, global_batch = 64, steps = 0, warmup = 0;
  OptimizerChoice optimizer = {};
  std::uint64_t seed = 1;
  std::string device = "auto", amp = "none";
  int threads = 0, workers = 1;
  bool capture = false;
  MemoryOptions memory = {};
  LoopChoice loop = {};
};

/// Adds their options, but for --warmup and --capture.
void add_image_training_options(CLI::App& app, ImageTrainingOptions& options);

/// Compares options and images between the ranks.
/// @throws lockstep::InvalidArgument on every rank, naming the first that differs.
void check_same_training(lockstep::Communicator& world, CLI::App& app, const ImageSets& sets);

/// This rank's part of the training images.
template <class Images>
lockstep::data::DataLoader<Images> training_batches(Images images, const ImageTrainingOptions& o,
                                                    const lockstep::Session& session) {
  const lockstep::data::RandomSampler order(images.size(), o.seed);
  return lockstep::data::DataLoader<Images>(std::move(images), order,
                                            {.batch_size = o.global_batch,
                                             .drop_last = true,
                                             .rank = session.rank(),
                                             .world_size = session.size(),
                                             .num_workers = o.workers,
                                             .device = session.device()});
}

/// Trains in epochs, down half a cosine behind the warm-up, tests after each, and saves the
/// weights.
/// @param batches what `training_batches` gave. @param loss see train::Step.
/// @return the program's exit code.
template <class Model, class Batches>
int train_images(lockstep::Session& session, lockstep::DistributedDataParallel<Model>& replica,
                 Batches& batches, const lockstep::data::ImageDataset& test,
                 lockstep::train::Step::Loss loss, const ImageTrainingOptions& o) {
  namespace ls = lockstep;
  const std::int64_t all = o.epochs * batches.size();
  const std::int64_t steps = o.steps > 0 ? std::min(o.steps, all) : all;
  const auto optimizer = make_optimizer(replica.named_parameters(), o.optimizer);
  const ls::optim::CosineAnnealingLR cosine{.iterations =
                                                std::max<std::int64_t>(1, steps - o.warmup)};
  ls::optim::LRScheduler scheduler(*optimizer, after_warmup(cosine, o.warmup));
  ls::amp::GradScaler scaler = make_scaler(o.amp);
  auto average = make_average(replica.named_parameters(), o.optimizer);
  ls::train::Step step(replica, *optimizer, std::move(loss),
                       {.scheduler = &scheduler,
                        .scaler = &scaler,
                        .average = average ? &*average : nullptr,
                        .autocast = autocast(o.amp),
                        .capture = o.capture});
  ls::train::Loop loop(session, o.loop.options(steps));
  loop.add(step);
  loop.evaluate = [&] {
    const auto scope = step.evaluation();
    return 1 - accuracy(replica.module(), test, session);
  };
  TrainingReport report(loop, session,
                        {.unit = "images",
                         .units_a_step = o.global_batch,
                         .epoch_steps = batches.size(),
                         .log = o.log,
                         .skips_overflows = scaler.is_enabled(),
                         .describe = test_accuracy});
  StepMemory memory(o.memory, session, loop);
  const int code =
      loop.run(batches, [&](auto& batch) { return memory([&] { return step(batch); }); });
  report.finish(step);
  if (code == ls::StopRequest::exit_code) return code;
  const auto scope = step.evaluation();
  if (session.is_main() && !o.save.empty()) {
    if (o.save.has_parent_path()) std::filesystem::create_directories(o.save.parent_path());
    ls::io::save_safetensors(o.save, replica.module().state_dict());
  }
  return leave_together(session, code);
}

}  // namespace examples
