// Trains a ResNet on images, data-parallel over the ranks that mpirun starts:
//
//     mpirun -np 2 build/bin/train_resnet --amp bf16
//
// on images that it draws itself, or by --data on a folder of IDX files such as MNIST's. Large
// batches want LARS and a warm-up: --global-batch 1024 --optimizer lars --lr 4 --warmup 100.

#include <cmath>
#include <iostream>
#include <optional>

#include <lockstep/lockstep.hpp>

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
  examples::CheckpointOptions checkpoints;
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
  examples::add_checkpoint_options(app, o.checkpoints);
}

using Model = ls::models::ResNet;
using Replica = ls::DistributedDataParallel<Model>;
using Loader = ls::data::DataLoader<examples::CroppedImages>;

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

/// Mean loss over this rank's part of a batch. Images lie in memory pixel by pixel, all channels of
/// a pixel together, and so does all that convolutions make of them.
Tensor batch_loss(Replica& replica, const ls::data::ImageBatch& batch, const Options& o) {
  const ls::amp::Autocast mixed = examples::autocast(o.amp);
  return ls::cross_entropy(replica(batch.images.channels_last()), batch.labels);
}

/// The steps of a run, by whatever loader gives the batches.
class Training {
 public:
  Training(Replica& replica, Loader& loader, const Options& o, ls::Session& session,
           std::int64_t steps)
      : replica_(replica),
        o_(o),
        session_(session),
        steps_(steps),
        optimizer_(examples::make_optimizer(replica.named_parameters(), o.optimizer)),
        scheduler_(*optimizer_, examples::after_warmup(
                                    ls::optim::CosineAnnealingLR{
                                        .iterations = std::max<std::int64_t>(1, steps - o.warmup)},
                                    o.warmup)),
        scaler_(examples::make_scaler(o.amp)),
        average_(examples::make_average(replica.named_parameters(), o.optimizer)),
        checkpoints_(o.checkpoints, session),
        first_(resume(loader)),
        step_(first_),
        progress_(steps, !session.is_main()),
        memory_(o.memory, session, steps - first_) {
    if (session.is_main() && !o.log.empty()) log_ = examples::StepLog(o.log, first_ > 0);
  }

  bool is_done() const { return step_ >= steps_ || is_stopped(); }
  bool is_stopped() const { return checkpoints_.is_stopped(); }
  std::int64_t steps_made() const { return step_; }
  void finish() { checkpoints_.finish(step_); }

  void run_epoch(Loader& loader) {
    report_.restart();
    for (const auto& batch : loader) {
      take_step(batch);
      if (is_done()) break;
    }
    report_.flush();
    progress_.finish();
  }

  /// The averaged weights, if there are any, until the end of scope.
  std::optional<ls::optim::WeightAverage::Swapped> averaged() {
    std::optional<ls::optim::WeightAverage::Swapped> swapped;
    if (average_) swapped.emplace(average_->swap_in());
    return swapped;
  }

 private:
  std::int64_t resume(Loader& loader) {
    checkpoints_.add_training(replica_, *optimizer_, scheduler_, scaler_, average_);
    checkpoints_.add("loader", loader);
    return checkpoints_.resume();
  }

  void take_step(const ls::data::ImageBatch& batch) {
    memory_.before_step(step_ - first_);
    const Tensor loss = batch_loss(replica_, batch, o_);
    const auto images = static_cast<double>(batch.labels.numel());  // parts may differ by one
    replica_.backward(scaler_.scale(loss), images);
    const double lr = optimizer_->lr();
    scaler_.step(*optimizer_);
    scaler_.update();
    if (average_) average_->update();
    optimizer_->zero_grad();
    scheduler_.step();
    const double share = images / static_cast<double>(o_.global_batch);
    const Tensor mean =
        ls::parallel::all_reduce_async(loss.detach().to(ls::DType::f64) * share, *session_.world())
            .wait();
    report_.add({.number = step_, .lr = lr, .loss = ls::HostCopy(mean)});
    memory_.after_step(step_ - first_);
    checkpoints_.after_step(++step_);
  }

  void tell(const examples::QueuedStep& done, double seconds) {
    const double loss = done.loss.item(), rate = static_cast<double>(o_.global_batch) / seconds;
    // A scaler skips what overflows in f16, and ends a training that does nothing else.
    LOCKSTEP_CHECK(std::isfinite(loss) || scaler_.is_enabled(), Error, "the loss became ", loss,
                   " at step ", done.number + 1, "; lower --lr or raise --warmup");
    log_.write({{"step", static_cast<double>(done.number)},
                {"loss", loss},
                {"lr", done.lr},
                {"images_per_s", rate},
                {"ms", seconds * 1e3}});
    progress_.show(done.number + 1, loss, rate, "images");
  }

  Replica& replica_;
  const Options& o_;
  const ls::Session& session_;
  std::int64_t steps_;
  std::unique_ptr<ls::optim::Optimizer> optimizer_;
  ls::optim::LRScheduler scheduler_;
  ls::amp::GradScaler scaler_;
  std::optional<ls::optim::WeightAverage> average_;
  examples::Checkpoints checkpoints_;
  std::int64_t first_, step_;
  examples::Progress progress_;
  examples::StepMemory memory_;
  examples::StepLog log_;
  examples::LateReport report_{
      [this](const examples::QueuedStep& done, double seconds) { tell(done, seconds); }};
};

int run(ls::Session& session, CLI::App& app, const Options& o) {
  examples::check_same_options(*session.world(), app,
                               {.own = {"--data", "--device", "--threads", "--workers", "--save",
                                        "--log", "--pool", "--memory-snapshot"}});
  const examples::ImageSets sets = image_sets(o);
  examples::check_same_images(*session.world(), sets);
  const auto model = make_model(o);
  model->to(session.device());
  Replica replica(model, session.world());
  Loader loader(examples::CroppedImages(sets.train, o.crop, !o.no_mirror),
                ls::data::RandomSampler(sets.train.size(), o.seed),
                {.batch_size = o.global_batch,
                 .drop_last = true,
                 .rank = session.rank(),
                 .world_size = session.size(),
                 .num_workers = o.workers,
                 .device = session.device()});
  const std::int64_t all = o.epochs * loader.size();
  Training training(replica, loader, o, session, o.steps > 0 ? std::min(o.steps, all) : all);
  if (session.is_main())
    std::cout << "ResNet-" << o.depth << " with " << model->parameter_count() << " parameters, "
              << sets.train.size() << " images" << (o.amp == "none" ? "" : ", products in " + o.amp)
              << ", " << session.size() << " rank(s) on " << session.device() << std::endl;
  for (std::int64_t epoch = training.steps_made() / loader.size() + 1; !training.is_done();
       ++epoch) {
    training.run_epoch(loader);
    if (training.is_stopped()) {
      training.finish();
      return examples::Checkpoints::exit_code;
    }
    const auto averaged = training.averaged();
    const ls::amp::Autocast mixed = examples::autocast(o.amp);
    const double share = examples::accuracy(*model, sets.test, session);
    if (session.is_main())
      std::cout << "epoch " << epoch << ": test accuracy " << 100 * share << " %" << std::endl;
  }
  training.finish();
  if (session.is_main() && !o.save.empty()) {
    const auto averaged = training.averaged();
    if (o.save.has_parent_path()) fs::create_directories(o.save.parent_path());
    ls::io::save_safetensors(o.save, model->state_dict());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a ResNet on images, data-parallel", "train_resnet");
  add_options(app, options);
  examples::parse(app, argc, argv);
  examples::check_checkpoint_options(app, options.checkpoints);
  return ls::Session::run(argc, argv,
                          [&](ls::Session& session) { return run(session, app, options); },
                          {.device = options.device, .threads = options.threads});
} catch (const examples::Exit& exit) {
  return exit.code;
}
