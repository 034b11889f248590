#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/optim/optim.hpp"
#include "lockstep/train/periodic_averaging.hpp"
#include "parallel/replicas.hpp"

/// @file
/// What LocalSGD and DiLoCo must come to, computed by one rank.

namespace lockstep::parallel::testing {

/// All ranks' replicas in one process, averaged by loops.
class AveragedAlone {
 public:
  AveragedAlone(int ranks, std::optional<DiLoCoOptions> outer, std::int64_t sync_every)
      : outer_options_(std::move(outer)), options_(outer_options_.value_or(DiLoCoOptions{})) {
    options_.sync_every = sync_every;
    for (int r = 0; r < ranks; ++r) {
      models_.push_back(make_net(7));
      optimizers_.push_back(std::make_unique<optim::AdamW>(models_.back()->parameters(),
                                                           optim::AdamWOptions{.lr = 1e-2}));
    }
    for (const Tensor& parameter : models_[0]->parameters()) {
      outer_.push_back(parameter.detach().clone());
      momentum_.push_back(zeros(parameter.shape(), parameter.options()));
      average_.emplace_back();
    }
    started_.assign(static_cast<std::size_t>(options_.fragments), -1);
  }

  void step(int number) {
    const auto ranks = static_cast<int>(models_.size());
    for (int r = 0; r < ranks; ++r) {
      const Batch batch = Batch::of_step(number).part(r, ranks);
      auto& optimizer = *optimizers_[static_cast<std::size_t>(r)];
      loss_of(models_[static_cast<std::size_t>(r)]->forward(batch.x), batch).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    const NoGradGuard no_grad;
    const std::int64_t done = number + 1;
    for (std::size_t f = 0; f < started_.size(); ++f)
      if (started_[f] >= 0 && done == started_[f] + options_.fragment_sync_delay) finish(f);
    for (std::size_t f = 0; f < started_.size(); ++f) {
      const auto turn = static_cast<std::int64_t>(f + 1) * options_.sync_every / options_.fragments;
      if (done % options_.sync_every != turn % options_.sync_every) continue;
      start(f);
      started_[f] = done;
      if (options_.fragment_sync_delay == 0) finish(f);
    }
  }
  const nn::Module& model(int rank) const { return *models_[static_cast<std::size_t>(rank)]; }

 private:
  /// Of two fragments, the first has the first three parameters: half of all elements.
  std::pair<std::size_t, std::size_t> range(std::size_t fragment) const {
    if (started_.size() == 1) return {0, outer_.size()};
    return fragment == 0 ? std::pair<std::size_t, std::size_t>{0, 3}
                         : std::pair{std::size_t{3}, outer_.size()};
  }
  void start(std::size_t fragment) {
    for (auto [p, end] = range(fragment); p < end; ++p) {
      average_[p] = zeros(outer_[p].shape(), outer_[p].options());
      for (const auto& model : models_)
        average_[p].add_(model->parameters()[p].detach() *
                         (1.0 / static_cast<double>(models_.size())));
    }
  }
  void finish(std::size_t fragment) {
    const double alpha = outer_options_ ? options_.fragment_update_alpha : 0;
    for (auto [p, end] = range(fragment); p < end; ++p) {
      if (outer_options_) {
        const Tensor gradient = outer_[p] - average_[p];
        momentum_[p] = momentum_[p] * options_.outer_momentum + gradient;
        outer_[p] =
            outer_[p] - (gradient + momentum_[p] * options_.outer_momentum) * options_.outer_lr;
      } else {
        outer_[p] = average_[p];
      }
      for (const auto& model : models_) {
        Tensor value = model->parameters()[p].detach();
        value.copy_(value * alpha + outer_[p] * (1 - alpha));
      }
    }
    started_[fragment] = -1;
  }

  std::optional<DiLoCoOptions> outer_options_;
  DiLoCoOptions options_;
  std::vector<nn::ModulePtr<Net>> models_;
  std::vector<std::unique_ptr<optim::AdamW>> optimizers_;
  std::vector<Tensor> outer_, momentum_, average_;
  std::vector<std::int64_t> started_;
};

}  // namespace lockstep::parallel::testing
