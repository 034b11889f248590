#include "support/image_training.hpp"

#include "support/command_line.hpp"
#include "support/same_options.hpp"

namespace examples {

void add_image_training_options(CLI::App& app, ImageTrainingOptions& o) {
  const auto positive = whole_number(1), count = whole_number(0);
  app.add_option("--epochs", o.epochs, "Passes over the training images")->check(positive);
  app.add_option("--steps", o.steps, "Stop after this many steps; 0: no limit")->check(count);
  app.add_option("--global-batch", o.global_batch, "Images a step, over all ranks")
      ->check(positive);
  add_optimizer_options(app, o.optimizer);
  app.add_option("--lr", o.optimizer.lr, "Peak learning rate; half a cosine takes it to 0")
      ->check(not_negative());
  app.add_option("--seed", o.seed, "Seed of weights, order and what else is drawn");
  app.add_option("--device", o.device, "auto, cpu or cuda");
  add_amp_option(app, o.amp);
  app.add_option("--threads", o.threads, "CPU threads a rank; 0: its share of the cores")
      ->check(whole_number(0, 4096));
  app.add_option("--workers", o.workers, "Threads that prepare batches")
      ->check(whole_number(0, 256));
  app.add_option("--save", o.save, "Write the trained weights here (safetensors)")
      ->check(writable_file());
  app.add_option("--log", o.log, "Write one JSON object a step here")->check(writable_file());
  add_memory_options(app, o.memory);
  add_loop_options(app, o.loop);
}

void check_same_training(lockstep::Communicator& world, CLI::App& app, const ImageSets& sets) {
  check_same_options(world, app,
                     {.own = {"--data", "--device", "--threads", "--workers", "--save", "--log",
                              "--pool", "--memory-snapshot"}});
  check_same_images(world, sets);
}

}  // namespace examples
