#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/amp/autocast.hpp"
#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/checkpoint/manager.hpp"
#include "lockstep/data/batch_tensors.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/weight_average.hpp"
#include "lockstep/train/step_graph.hpp"
#include "lockstep/train/weighted_loss.hpp"

/// @file
/// A step of data-parallel training: one batch, one update of the weights.

namespace lockstep::train {

/// What a step gives: tensors on its device, for which nobody has waited yet.
struct StepResult {
  /// One element, the mean over the batches of all ranks, each by its weight; undefined: none.
  Tensor loss = {};
  Tensor grad_norm = {};  ///< one element; undefined where it was not taken
  double lr = 0;          ///< that the step was made with
};

/// Options of a Step. What they point to must outlive it.
struct StepOptions {
  optim::LRScheduler* scheduler = nullptr;  ///< moves on after each step
  amp::GradScaler* scaler = nullptr;        ///< scales the loss
  /// Takes in the weights of each step. Of buffers each rank has averages of its own, of which
  /// those of rank 0 are evaluated and saved.
  optim::WeightAverage* average = nullptr;
  std::optional<DType> autocast = {};   ///< dtype of products: bf16 or f16
  std::optional<double> max_norm = {};  ///< of gradients; infinity: it is taken, not limited
  /// Rows at once, gradients add up; 0: all.
  std::int64_t micro_batch = 0;
  /// All ranks make as many parts as the one that has most, maybe of no rows, for which they wait
  /// for each other in each step: for losses and modules with collectives in their forward. So it
  /// is with a zero_stage of 3 and with synchronized batch norms, whatever this says. Not in steps
  /// that are captured, whose ranks have equal batches then.
  bool same_micro_batches = false;
  /// Repeat the step as a StepGraph, captured anew where a module goes to training or evaluation or
  /// has other call hooks, as all ranks must see to alike. What else the loss does on the host is
  /// that of the capture: see `reset`.
  bool capture = false;
  /// Of as many shapes of a batch graphs are kept: StepGraphOptions::max_shapes.
  std::size_t max_shapes = 8;
};

/// Makes steps of training: forward and backward of a batch, in parts if that is asked for, clips,
/// updates, averages and goes on in the schedule:
///
///     train::Step step(ddp, optimizer,
///                      [&](std::span<const Tensor> in) { return cross_entropy(ddp(in[0]), in[1]);
///                      },
///                      {.scheduler = &scheduler, .max_norm = 1.0});
///     for (auto& batch : loader) report(step(batch));
///
/// is, but for the parts, the words
///
///     ddp.backward(loss, rows);
///     optim::clip_grad_norm_(ddp.parameters(), 1.0);
///     optimizer.step();
///     optimizer.zero_grad();
///     scheduler.step();
///
/// Ranks, and parts, may have different numbers of rows: each counts by its own, or by what the
/// loss says (WeightedLoss), as it must where tensors of a batch differ in rows, such as the nodes
/// and edges of graphs. A rank may have none while another has: its loss function is called with
/// tensors that all have 0 rows, whose mean may be NaN, and counts nothing (batch norms take them
/// where they are synchronized). So may a part, with `same_micro_batches`. Waits for nothing on a
/// GPU, but on a rank without rows, and where all make as many micro-batches, for the other ranks.
/// All ranks must make the same calls, with the same options but for `micro_batch`, and weigh by
/// the same; one thread.
class Step {
 public:
  /// The mean loss over the rows of a part of a batch, from a forward through the wrapper, or a
  /// WeightedLoss, a mean over something else. It gets the batch's tensors.
  using Loss = std::function<WeightedLoss(std::span<const Tensor> inputs)>;

  /// @param ddp and optimizer must outlive it. @param optimizer of all parameters that train.
  /// @param loss as above. @throws InvalidArgument for options out of range, and for an optimizer
  /// without one of the parameters.
  template <class M>
  Step(DistributedDataParallel<M>& ddp, optim::Optimizer& optimizer, Loss loss,
       const StepOptions& options = {})
      : Step(ddp.module(), ddp.replica(), optimizer, std::move(loss), options) {}
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// Makes one.
  /// @param inputs with as many rows each, where micro-batches take them apart.
  /// @throws what the loss and the update do; comm::Mismatch, before the update, where ranks have
  /// other options or kinds of weights (over NCCL the group fails); InvalidArgument on all ranks
  /// where none has a row (of a captured step, behind its update). No gradient of the batch is left
  /// then.
  StepResult operator()(std::span<const Tensor> inputs);
  /// The same, `step({images, labels})`.
  StepResult operator()(std::initializer_list<Tensor> inputs) {
    return (*this)(std::span(inputs.begin(), inputs.size()));
  }
  /// The same with all tensors that data::visit_tensors finds in a batch.
  template <class Batch>
  requires data::has_tensors<Batch> StepResult operator()(Batch& batch) {
    std::vector<Tensor> inputs;
    auto collect = [&](Tensor& tensor) { inputs.push_back(tensor); };
    data::visit_tensors(batch, collect);
    return (*this)(std::span<const Tensor>(inputs));
  }

  /// While it lives, the module is as it is to be evaluated or saved: no gradients are recorded,
  /// modules are in evaluation, weights are whole, and averaged where there is an average (none
  /// before the first step), buffers are those of rank 0 (DistributedDataParallel::send_buffers),
  /// and ops are cast as in training. Then everything is as it was, but for buffers, which the next
  /// step replaces, too: training goes on with the same bits.
  class [[nodiscard]] EvaluationScope {
   public:
    /// See Step::evaluation.
    explicit EvaluationScope(Step& step);
    EvaluationScope(const EvaluationScope&) = delete;
    EvaluationScope& operator=(const EvaluationScope&) = delete;
    ~EvaluationScope();

   private:
    NoGradGuard no_recording_;
    amp::Autocast autocast_;
    nn::WholeParameters whole_;
    std::optional<optim::WeightAverage::Swapped> averaged_;
    std::vector<std::pair<nn::Module*, bool>> modes_;  // children before their parents
  };
  /// Begins an evaluation. Every rank must call it, between steps.
  EvaluationScope evaluation() { return EvaluationScope(*this); }

  /// How many ranks average their gradients.
  int replicas() const { return replica_.group()->size(); }
  /// Adds all that steps change to what checkpoints keep: "model", "optimizer", "scheduler",
  /// "scaler" and "average". What a communication hook (PowerSgd, DelayedReduction) or a LocalSGD
  /// or DiLoCo keeps is to be added beside.
  void add_to(checkpoint::Manager& checkpoints) const;
  /// What of that there is; see nn::ReplicatedModule::keeps_beside.
  nn::ReplicatedModule::Beside keeps_beside() const { return replica_.keeps_beside(); }
  /// A parameter that the optimizer has and the module has not, such as another wrapper's: by its
  /// name there, or its shape. Empty if there is none. `add_to` adds no such value.
  std::string parameter_beside_module() const;
  /// Why the last step ran eagerly though it was to be captured; empty if it did not.
  const std::string& fallback_reason() const noexcept { return graph_.fallback_reason(); }
  /// Drops what is captured: for a change that nothing else tells of, as in a branch of the loss
  /// (StepGraph::reset). All ranks must call it alike.
  void reset() { graph_.reset(); }

 private:
  Step(nn::Module& module, nn::ReplicatedModule& replica, optim::Optimizer& optimizer, Loss loss,
       const StepOptions& options);
  std::vector<Tensor> update(std::span<const Tensor> inputs);
  struct OwnLoss;
  struct Parts;
  bool is_to_be_captured() const;
  void reset_for_other_modes();
  Parts parts_of(std::int64_t rows);
  OwnLoss accumulate_gradients(std::span<const Tensor> inputs);
  std::vector<Tensor> mean_over_ranks(const OwnLoss& own) const;

  nn::Module& module_;
  nn::ReplicatedModule& replica_;
  optim::Optimizer& optimizer_;
  Loss loss_;
  StepOptions options_;
  amp::GradScaler unscaled_{{.enabled = false}};  // in the place of none
  amp::GradScaler& scaler_;
  std::string compared_;      // between ranks
  bool is_warned_ = false;    // of tensors that differ in rows
  std::vector<Tensor> cast_;  // parameters that the step before took in the products' dtype
  StepGraph graph_;
  std::vector<std::uint64_t> modes_;   // of the modules, and of their hooks, in the step before
  std::optional<bool> any_has_parts_;  // of all ranks, where they have as many; asked once
};

}  // namespace lockstep::train
