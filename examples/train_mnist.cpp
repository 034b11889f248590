// Trains a small convolutional network on MNIST, data-parallel over the ranks that mpirun starts:
//
//     mpirun -np 2 build/bin/train_mnist --data folder/with/idx/files
//
// Where only the 10,000 test images are there, the first 8,000 train and the others test.

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
  std::int64_t epochs = 3, global_batch = 64, steps = 0;
  examples::OptimizerChoice optimizer{.lr = 2e-3};
  std::uint64_t seed = 1;
  std::string device = "auto", amp = "none";
  int threads = 0, workers = 1;
  bool capture = false;
  examples::MemoryOptions memory;
  examples::LoopChoice loop;
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
  examples::add_loop_options(app, o.loop);
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
  ls::DistributedDataParallel replica(model, session.world());
  ls::data::DataLoader loader(data.train, ls::data::RandomSampler(data.train.size(), o.seed),
                              {.batch_size = o.global_batch,
                               .drop_last = true,
                               .rank = session.rank(),
                               .world_size = session.size(),
                               .num_workers = o.workers,
                               .device = session.device()});
  const std::int64_t all = o.epochs * loader.size();
  const std::int64_t steps = o.steps > 0 ? std::min(o.steps, all) : all;
  const auto optimizer = examples::make_optimizer(replica.named_parameters(), o.optimizer);
  ls::optim::LRScheduler scheduler(*optimizer, ls::optim::CosineAnnealingLR{.iterations = steps});
  ls::amp::GradScaler scaler = examples::make_scaler(o.amp);
  auto average = examples::make_average(replica.named_parameters(), o.optimizer);
  if (session.is_main())
    std::cout << model->parameter_count() << " parameters, " << data.train.size() << " images, "
              << session.size() << " rank(s) on " << session.device() << std::endl;

  ls::train::Step step(
      replica, *optimizer,
      [&](std::span<const ls::Tensor> in) { return ls::cross_entropy(replica(in[0]), in[1]); },
      {.scheduler = &scheduler,
       .scaler = &scaler,
       .average = average ? &*average : nullptr,
       .autocast = examples::autocast(o.amp),
       .capture = o.capture});
  ls::train::Loop loop(session, o.loop.options(steps));
  loop.add(step);
  loop.evaluate = [&] {
    const auto scope = step.evaluation();
    return 1 - examples::accuracy(*model, data.test, session);
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
  CLI::App app("Trains a small convolutional network on MNIST, data-parallel", "train_mnist");
  add_options(app, options);
  examples::parse(app, argc, argv);
  examples::check_loop_options(app, options.loop);
  return ls::Session::run(argc, argv,
                          [&](ls::Session& session) { return run(session, app, options); },
                          {.device = options.device, .threads = options.threads});
} catch (const examples::Exit& exit) {
  return exit.code;
}
