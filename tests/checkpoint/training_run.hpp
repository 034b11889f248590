#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"

/// @file
/// A small training run with all that a checkpoint must keep: dropout, moments, a schedule, a loss
/// scale, an average of weights, a loader in the midst of its epoch, a variable.

namespace lockstep::testing {

inline data::TensorDataset run_samples() {
  Generator generator(5);
  const NoGradGuard no_grad;
  std::vector<float> inputs, targets;
  for (int i = 0; i < 96 * 6; ++i)
    inputs.push_back(static_cast<float>(uniform_from_bits(generator.next().word(0))) - 0.5F);
  for (int i = 0; i < 96; ++i) targets.push_back(inputs[static_cast<std::size_t>(i) * 6] * 2);
  return data::TensorDataset(
      {from_span<float>(inputs, {96, 6}), from_span<float>(targets, {96, 1})});
}

struct TrainingRunOptions {
  int zero = 0;
  int workers = 0;
  int prefetch = 2;
  std::int64_t batch = 4;
  bool dropout = true;
  int micro_batches =
      0;  ///< of a step over all ranks, whose averages are reproducible; 0: they are not
  Device device = cpu;
  CommunicatorPtr host = nullptr;  ///< where the device is a GPU
  checkpoint::ManagerOptions manager = {};
};

/// One rank of it.
class TrainingRun {
 public:
  struct Net : nn::Module {
    nn::Child<nn::Linear> hidden{this, "hidden", 6, 17};
    nn::Child<nn::Dropout> drop{this, "drop", 0.2};
    nn::Child<nn::Linear> output{this, "output", 17, 1};
    nn::Buffer calls{this, "calls", zeros({1})};
    Tensor forward(const Tensor& x) {
      if (is_training()) Tensor(calls).mul_(0.9).add_(x.detach().mean());  // each rank's own
      return output(drop(relu(hidden(x))));
    }
  };

  TrainingRun(const CommunicatorPtr& group, const std::filesystem::path& folder,
              const TrainingRunOptions& options)
      : model_(make_model(options)),
        options_(options),
        ddp_(model_, group, replica_options(options)),
        optimizer_(ddp_.named_parameters(), {.lr = 0.05, .weight_decay = 0.01}),
        scheduler_(optimizer_, optim::CosineAnnealingLR{.iterations = 40}),
        scaler_({.init_scale = 8, .growth_interval = 3, .group = ddp_.shard_group()}),
        average_(options.zero < 3 ? std::optional<optim::WeightAverage>(std::in_place,
                                                                        model_->named_parameters())
                                  : std::nullopt),
        loader_(run_samples(), data::RandomSampler(96, 11),
                {.batch_size = options.batch,
                 .rank = group->rank(),
                 .world_size = group->size(),
                 .num_workers = options.workers,
                 .prefetch = options.prefetch,
                 .seed = 3,
                 .device = options.device}),
        group_(group),
        checkpoints_(folder, options.host ? options.host : group, options.manager) {
    manual_seed(100 + (options.micro_batches > 0 ? 0U : static_cast<std::uint64_t>(group->rank())));
    checkpoints_.add("model", ddp_);
    checkpoints_.add("optimizer", optimizer_, ddp_);
    checkpoints_.add("scheduler", scheduler_);
    checkpoints_.add("scaler", scaler_);
    if (average_) checkpoints_.add("average", *average_);
    checkpoints_.add("loader", loader_);
    checkpoints_.add("random", default_generator());
    checkpoints_.add("losses", loss_sum_);
    checkpoints_.add("steps", step_);
  }

  /// Makes steps until there are so many.
  void train(std::int64_t steps) {
    while (step_ < steps)
      for (auto batch = loader_.begin(); batch != loader_.end() && step_ < steps; ++batch) {
        double loss = 0;
        const std::int64_t parts = std::max(1, options_.micro_batches / group_->size());
        const std::int64_t rows = (*batch)[0].size(0) / parts;
        for (std::int64_t k = 0; k < parts; ++k) {
          std::optional<DistributedDataParallel<Net>::NoSync> local;
          if (k + 1 < parts) local.emplace(ddp_.no_sync());
          const auto part = [&](std::size_t i) { return (*batch)[i].narrow(0, k * rows, rows); };
          const Tensor own = nn::functional::mse_loss(ddp_(part(0)), part(1));
          ddp_.backward(scaler_.scale(own), static_cast<double>(rows));
          loss += own.item();
        }
        scaler_.step(optimizer_);
        scaler_.update();
        scheduler_.step();
        optimizer_.zero_grad();
        if (average_) average_->update();
        loss_sum_ += loss;
        ++step_;
        if (on_step) on_step(step_);
      }
  }
  std::function<void(std::int64_t)> on_step;

  std::optional<std::int64_t> resume() { return checkpoints_.load_newest(); }
  checkpoint::Manager& checkpoints() { return checkpoints_; }
  /// All weights, of this rank's model.
  std::vector<double> values() {
    const auto whole = ddp_.whole_parameters();
    std::vector<double> all;
    for (const auto& [name, tensor] : model_->named_parameters())
      for (const double value : tensor.to_vector<double>()) all.push_back(value);
    return all;
  }
  /// The same, and buffers, as bytes.
  std::string weights() {
    const auto whole = ddp_.whole_parameters();
    std::string bytes;
    for (const auto& [name, tensor] : model_->state_dict()) {
      const Tensor values = tensor.contiguous().to(cpu);
      bytes.append(static_cast<const char*>(values.data_ptr()), values.nbytes());
    }
    return bytes;
  }
  std::int64_t steps() const { return step_; }
  double loss_sum() const { return loss_sum_; }

 private:
  static nn::ModulePtr<Net> make_model(const TrainingRunOptions& options) {
    manual_seed(7);
    auto model = nn::make<Net>();
    if (!options.dropout) model->drop->eval();
    model->to(options.device);
    return model;
  }
  static DistributedDataParallelOptions replica_options(const TrainingRunOptions& options) {
    DistributedDataParallelOptions replica{
        .zero_stage = options.zero,
    };
    if (options.micro_batches == 0) return replica;
    replica.reduction = GradientReduction::reproducible;
    replica.micro_batches = options.micro_batches;
    return replica;
  }

  nn::ModulePtr<Net> model_;
  TrainingRunOptions options_;
  DistributedDataParallel<Net> ddp_;
  optim::AdamW optimizer_;
  optim::LRScheduler scheduler_;
  amp::GradScaler scaler_;
  std::optional<optim::WeightAverage> average_;
  data::DataLoader<data::TensorDataset> loader_;
  CommunicatorPtr group_;
  checkpoint::Manager checkpoints_;
  std::int64_t step_ = 0;
  double loss_sum_ = 0;
};

}  // namespace lockstep::testing
