#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/device.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// A step of training that is repeated as a whole.

namespace lockstep {

/// Options of a StepGraph; names are PyTorch's where it has them (make_graphed_callables).
struct StepGraphOptions {
  /// Calls that run eagerly before the first one that is captured: they make what is made once
  /// (optimizer states, buckets in measured order, plans of libraries). For shapes that come later
  /// one such call is enough. At least 1.
  int num_warmup_iters = 3;
  /// Shapes of inputs for which graphs are kept; others run eagerly.
  std::size_t max_shapes = 8;
  /// All ranks that have a part in the step. To be given where the step has collectives over
  /// several ranks: on GPUs they must capture it alike.
  CommunicatorPtr group = {};
  /// Where the step computes; default: where its first input lies.
  std::optional<Device> device = std::nullopt;
};

/// Runs a step of training (forward, backward, collectives, clipping, loss scaler, optimizer) as a
/// whole: after some eager calls it is captured, and later calls replay it. On a GPU that is one
/// launch of a CUDA graph; on the CPU the recorded kernels run one after the other, with nothing
/// built or allocated around them.
///
///     StepGraph step([&](std::span<const Tensor> in) {
///       const Tensor loss = cross_entropy(replica(in[0]), in[1]);
///       loss.backward();
///       optimizer.step();
///       optimizer.zero_grad();
///       return std::vector{loss};
///     }, {.group = session.world()});
///     for (const auto& batch : loader) {
///       report(HostCopy(step({batch.images, batch.labels})[0]));
///       scheduler.step();
///     }
///
/// A replay gives the bits that the eager step would. Dropout draws anew, learning rates move and
/// the loss scaler skips steps: kernels read all that from the memory of their device, and the
/// host's part (schedules, counts of updates, names of collectives) is done with each replay.
///
/// What else the step's function does on the host happens only when it is called, which a replay
/// does not do: branches, numbers, modes (train, eval) and tensors that it gets from elsewhere than
/// its inputs are those of the capture. Call `reset` when such a thing changes. What goes from call
/// to call, such as the state of a recurrent net, is an input and a result, or changed in place.
/// The step must not read values on the host, or copy from and to it, and must begin or end with
/// `zero_grad`.
///
/// A step that cannot be captured runs eagerly, and `fallback_reason` says why.
///
/// What the step uses must live as long as it is called. Always to be called by the same thread.
class StepGraph {
 public:
  /// A step: takes the inputs, and returns what the caller wants of it. May be called up to three
  /// times for one step: if a capture fails, and where several ranks with GPUs capture.
  using Step = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;

  /// @throws InvalidArgument for options out of range.
  explicit StepGraph(Step step, const StepGraphOptions& options = {});
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;
  /// Waits for launches under way.
  ~StepGraph();

  /// Makes one step.
  /// @param inputs as many as the step wants; a graph is kept for each list of shapes, strides and
  /// dtypes. They are copied to where the graph reads them: what the step writes to them stays
  /// there, in eager calls before the capture, too. Steps that fall back are given them as they
  /// are.
  /// @return what the step returned, detached. Results of a replay lie in memory of the graph,
  /// which the next call overwrites. @throws what the step throws; on the CPU also in a replay, as
  /// for an index out of range: then the rest of the step is not made.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs);
  std::vector<Tensor> operator()(std::initializer_list<Tensor> inputs) {
    return (*this)(std::span<const Tensor>(inputs.begin(), inputs.size()));
  }

  /// True if the last call replayed a graph.
  bool replayed() const noexcept;
  /// Why the last call ran eagerly though the warm-up was over; empty if it did not.
  const std::string& fallback_reason() const noexcept;
  /// Drops all graphs and reasons: the next call captures anew, after one eager call. Within a call
  /// (by the step itself, or a hook of it) it does so when that returns.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
