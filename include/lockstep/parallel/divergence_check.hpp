#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/tensor/host_copy.hpp"
#include "lockstep/tensor/named_tensors.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Finding replicas that have silently become different.

namespace lockstep::parallel {

/// Options of a DivergenceCheck.
struct DivergenceCheckOptions {
  /// Steps from one check to the next.
  std::int64_t every = 100;
};

/// Compares tensors that shall be equal on all ranks, bit for bit: parameters, which a flipped bit,
/// a wrong kernel or a rank that went its own way has changed on one of them. Every so many steps a
/// number is taken of each tensor, and one all-reduce of 16 bytes compares what they come to; only
/// where that differs are the numbers themselves exchanged.
///
///     parallel::DivergenceCheck check(model->named_parameters(), session.world());
///     for (...) {
///       ...
///       optimizer.step();
///       check.step();
///     }
///     check.run();  // before the weights are saved
///
/// Reads each tensor once a check. On a GPU the host does not wait: the step after it hears the
/// result. All ranks must make the same calls; outside of captured steps. For one thread.
///
/// With LocalSGD and DiLoCo ranks differ between averages: call `run` behind `synchronize`, and no
/// `step`.
class DivergenceCheck {
 public:
  /// Compares what the tensors are called. Blocks.
  /// @param tensors handles are kept; on the group's device, the same names, shapes and dtypes on
  /// every rank. Under ZeRO the module's own parameters; of stage 3 only under `whole_parameters`.
  /// @param group whose ranks are compared.
  /// @throws InvalidArgument for another device, or an option out of range; comm::Mismatch naming
  /// the first tensor that is another one elsewhere.
  DivergenceCheck(NamedTensors tensors, CommunicatorPtr group, DivergenceCheckOptions options = {});
  DivergenceCheck(const DivergenceCheck&) = delete;
  DivergenceCheck& operator=(const DivergenceCheck&) = delete;

  /// Counts a step; begins a check with every so many, and on a GPU ends that of the step before.
  /// @throws comm::Mismatch on every rank, naming the ranks whose values differ from those of most
  /// ranks, the first tensor that does, and the steps between which it happened.
  void step();
  /// Ends a check under way, and checks what the tensors hold now. Blocks. @throws as step.
  void run();

  /// Steps that were counted.
  std::int64_t steps() const noexcept { return steps_; }

 private:
  struct Pending {
    std::int64_t step;
    Tensor fingerprints;  // of each tensor
    HostCopy extremes;    // of what they come to, over the ranks
  };

  void begin();
  void end();
  [[noreturn]] void report(const Pending& check) const;
  std::string advice() const;

  std::vector<std::string> names_;
  std::vector<Tensor> tensors_;
  CommunicatorPtr group_;
  DivergenceCheckOptions options_;
  std::int64_t steps_ = 0;
  std::optional<std::int64_t> last_equal_;  // the step after which all were found equal
  std::optional<Pending> pending_;
};

}  // namespace lockstep::parallel
