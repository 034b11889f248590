#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"

/// @file
/// Small trainings of a GPT, a ResNet and a perceptron that are saved and go on from checkpoints,
/// and tell which samples they saw.

namespace lockstep::testing {

/// What is trained: a model with its loss.
struct Task : nn::Module {
  /// @param in the batch's tensors behind the numbers of its samples. @return the mean loss.
  virtual Tensor forward(std::span<const Tensor> in) = 0;
};

struct PerceptronTask : Task {
  nn::Child<nn::Linear> hidden{this, "hidden", 6, 17};
  nn::Child<nn::Dropout> drop{this, "drop", 0.2};
  nn::Child<nn::Linear> output{this, "output", 17, 1};
  nn::Buffer mean{this, "mean", zeros({1})};
  bool notes_mean = false;  ///< of the inputs so far, which each rank knows of its own
  bool uses_mean = false;
  Tensor forward(std::span<const Tensor> in) override {
    Tensor x = in[0];
    if (is_training() && notes_mean) Tensor(mean).mul_(0.9).add_(x.detach().mean());
    if (uses_mean) x = x - Tensor(mean);
    return nn::functional::mse_loss(output(drop(relu(hidden(x)))), in[1]);
  }
};

struct GptTask : Task {
  nn::Child<models::Gpt2> net{
      this, "net",
      models::Gpt2Options{
          .layers = 1, .heads = 2, .channels = 8, .context = 6, .vocabulary = 11, .dropout = 0.1}};
  Tensor forward(std::span<const Tensor> in) override {
    const Tensor logits = net(in[0]);
    return cross_entropy(logits.reshape({-1, logits.size(-1)}), in[1].reshape({-1}));
  }
};

struct ResNetTask : Task {
  nn::Child<models::ResNet> net{
      this, "net", models::ResNet::Depth::d18,
      models::ResNetOptions{.num_classes = 3, .in_channels = 1, .width = 2}};
  Tensor forward(std::span<const Tensor> in) override { return cross_entropy(net(in[0]), in[1]); }
};

enum class TaskKind : unsigned char { perceptron, gpt, resnet };

inline std::string name_of(TaskKind kind) {
  return kind == TaskKind::gpt ? "Gpt" : kind == TaskKind::resnet ? "ResNet" : "Perceptron";
}

/// 80 samples, with noise drawn anew each epoch; a batch begins with their numbers.
struct NumberedSamples {
  TaskKind kind = TaskKind::perceptron;

  std::int64_t size() const { return 80; }
  std::vector<Tensor> fetch(std::span<const std::int64_t> indices,
                            const data::SampleRandom& random) const {
    std::vector<std::vector<Tensor>> columns(3);
    for (const std::int64_t index : indices) {
      Generator fixed(static_cast<std::uint64_t>(index)), drawn = random.of(index);
      columns[0].push_back(tensor<std::int64_t>({index}));
      if (kind == TaskKind::gpt) {
        const Tensor text = (rand({1, 7}, {}, fixed) * 11).to(DType::i64);
        Tensor tokens = text.slice(1, 0, 6).clone();
        tokens.slice(1, 0, 1).copy_((rand({1, 1}, {}, drawn) * 11).to(DType::i64));
        columns[1].push_back(tokens);
        columns[2].push_back(text.slice(1, 1, 7));
        continue;
      }
      const Shape shape = kind == TaskKind::resnet ? Shape{1, 1, 8, 8} : Shape{1, 6};
      const Tensor x = randn(shape, {}, fixed);
      columns[1].push_back(x + 0.1 * randn(shape, {}, drawn));
      columns[2].push_back(kind == TaskKind::resnet ? tensor<std::int64_t>({index % 3})
                                                    : x.slice(1, 0, 1) * 2);
    }
    std::vector<Tensor> batch;
    for (const auto& column : columns) batch.push_back(cat(column));
    return batch;
  }
};

/// How a TrainingRun trains.
struct TrainingRunOptions {
  TaskKind kind = TaskKind::perceptron;
  int workers = 3;
  int prefetch = 4;
  std::int64_t batch = 16;  ///< over all ranks
  bool dropout = false;
  bool notes_mean = false;  ///< of the perceptron's inputs
  bool uses_mean = false;   ///< and notes it
  bool synchronizes_norms = false;
  train::StepOptions step = {};
  DistributedDataParallelOptions replica = {};
  bool scales = false, averages = false;
  Device device = cpu;
  CommunicatorPtr host = nullptr;  ///< where the device is a GPU
  checkpoint::ManagerOptions manager = {.keep_last = 99};
};

/// With all that a checkpoint must keep: dropout, a loss scale, buffers that are each rank's own,
/// and, where weights are whole, an average of them.
inline TrainingRunOptions with_all(int zero_stage = 0,
                                   const checkpoint::ManagerOptions& manager = {}) {
  return {.workers = 0,
          .prefetch = 2,
          .batch = 4,
          .dropout = true,
          .notes_mean = true,
          .replica = {.zero_stage = zero_stage},
          .scales = true,
          .averages = zero_stage < 3,
          .manager = manager};
}

/// One rank of a training of 80 samples an epoch.
class TrainingRun {
 public:
  TrainingRun(const CommunicatorPtr& group, const std::filesystem::path& folder,
              const TrainingRunOptions& options)
      : task_(make_task(group, options)),
        ddp_(task_, group, options.replica),
        optimizer_(ddp_.named_parameters(), {.lr = 0.01, .eps = 1e-3, .weight_decay = 0.01}),
        scheduler_(optimizer_, optim::CosineAnnealingLR{.iterations = 20}),
        scaler_({.init_scale = 8,
                 .growth_interval = 3,
                 .enabled = options.scales,
                 .group = ddp_.shard_group()}),
        loader_(NumberedSamples{options.kind}, data::RandomSampler(80, 11),
                {.batch_size = options.batch,
                 .rank = group->rank(),
                 .world_size = group->size(),
                 .num_workers = options.workers,
                 .prefetch = options.prefetch,
                 .seed = 3,
                 .device = options.device}),
        checkpoints_(folder, options.host ? options.host : group, options.manager) {
    if (options.averages) {
      const auto whole = ddp_.whole_parameters();
      average_.emplace(task_->named_parameters(), optim::WeightAverageOptions{.decay = 0.9});
    }
    step_.emplace(
        ddp_, optimizer_, [this](std::span<const Tensor> in) { return ddp_(in); },
        with_parts(options.step));
    const bool is_reproducible = options.replica.reduction == GradientReduction::reproducible;
    manual_seed(100 + (is_reproducible ? 0U : static_cast<std::uint64_t>(group->rank())));
    step_->add_to(checkpoints_);
    checkpoints_.add("loader", loader_);
    checkpoints_.add("random", default_generator());
    checkpoints_.add("losses", loss_sum_);
    checkpoints_.add("steps", steps_);
  }

  /// Goes on from the newest checkpoint. @return behind which step; nothing if there is none.
  std::optional<std::int64_t> resume() { return checkpoints_.load_newest(); }
  /// Makes steps until there are so many.
  void train(std::int64_t steps) {
    while (steps_ < steps)
      for (auto batch = loader_.begin(); batch != loader_.end() && steps_ < steps; ++batch) {
        seen_.push_back((*batch)[0].to(cpu).to_vector<std::int64_t>());
        const Tensor loss = (*step_)(std::span<const Tensor>(*batch).subspan(1)).loss;
        losses_.push_back(loss.to(cpu).item());
        loss_sum_ += losses_.back();
        ++steps_;
        if (on_step) on_step(steps_);
      }
  }
  std::function<void(std::int64_t)> on_step;

  checkpoint::Manager& checkpoints() { return checkpoints_; }
  std::int64_t steps() const { return steps_; }
  /// Of the run since its first step, as rank 0 had it when it was saved.
  double loss_sum() const { return loss_sum_; }
  /// Weights, buffers and averages of this rank, as bytes.
  std::string bytes() {
    const auto whole = ddp_.whole_parameters();
    std::string bytes;
    const auto append = [&](const NamedTensors& tensors) {
      for (const auto& [name, tensor] : tensors) {
        const Tensor values = tensor.contiguous().to(cpu);
        bytes.append(static_cast<const char*>(values.data_ptr()), values.nbytes());
      }
    };
    append(task_->state_dict());
    if (average_) append(average_->state_dict());
    return bytes;
  }
  /// Weights of this rank.
  std::vector<double> weights() {
    const auto whole = ddp_.whole_parameters();
    std::vector<double> all;
    for (const auto& [name, tensor] : task_->named_parameters())
      for (const double value : tensor.to(cpu, DType::f64).to_vector<double>())
        all.push_back(value);
    return all;
  }
  /// The numbers of this rank's samples, step by step.
  const std::vector<std::vector<std::int64_t>>& seen() const { return seen_; }
  const std::vector<double>& losses() const { return losses_; }
  const std::string& fallback_reason() const { return step_->fallback_reason(); }

 private:
  static nn::ModulePtr<Task> make_task(const CommunicatorPtr& group,
                                       const TrainingRunOptions& options) {
    manual_seed(7);
    const nn::ModulePtr<Task> task = make_task(options);
    if (options.synchronizes_norms) nn::convert_sync_batchnorm(*task, group);
    task->apply([&](nn::Module& each) {
      if (dynamic_cast<nn::Dropout*>(&each) && !options.dropout) each.eval();
    });
    task->to(options.device);
    return task;
  }
  static nn::ModulePtr<Task> make_task(const TrainingRunOptions& options) {
    if (options.kind == TaskKind::gpt) return nn::make<GptTask>();
    if (options.kind == TaskKind::resnet) return nn::make<ResNetTask>();
    const auto task = nn::make<PerceptronTask>();
    task->uses_mean = options.uses_mean;
    task->notes_mean = options.notes_mean || options.uses_mean;
    return task;
  }
  train::StepOptions with_parts(train::StepOptions options) {
    options.scheduler = &scheduler_;
    options.scaler = &scaler_;
    options.average = average_ ? &*average_ : nullptr;
    return options;
  }

  nn::ModulePtr<Task> task_;
  DistributedDataParallel<Task> ddp_;
  optim::AdamW optimizer_;
  optim::LRScheduler scheduler_;
  amp::GradScaler scaler_;
  std::optional<optim::WeightAverage> average_;
  std::optional<train::Step> step_;
  data::DataLoader<NumberedSamples> loader_;
  checkpoint::Manager checkpoints_;
  std::int64_t steps_ = 0;
  double loss_sum_ = 0;
  std::vector<std::vector<std::int64_t>> seen_;
  std::vector<double> losses_;
};

}  // namespace lockstep::testing
