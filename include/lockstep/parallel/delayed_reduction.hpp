#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/parallel/bucket_reduction.hpp"
#include "lockstep/tensor/named_tensors.hpp"

/// @file
/// Gradients that are averaged while the next step computes.

namespace lockstep::parallel {

/// Each backward leaves the averages of the one before, and starts to average its own in the
/// background: the all-reduce may take as long as a step, and nothing waits for it (SGD with a
/// staleness of one; Ho et al. 2013, in its form for all-reduces as in Pipe-SGD, Li et al. 2018).
/// The first backward leaves zeros. All ranks have the same gradients in each step, as they have
/// without it.
///
/// Keeps the gradients once more. Belongs to one DistributedDataParallel, without
/// `find_unused_parameters`: what takes part in a step must have been part of the one before.
///
///     ddp.register_comm_hook(std::make_shared<parallel::DelayedReduction>());
///
/// The last backward's averages are never applied: training of n steps applies n - 1. With a
/// GradScaler an inf is found one step late, when the next loss was scaled alike, which may so be
/// skipped, too; and gradients from before a change of the scale count by the new one, once.
class DelayedReduction final : public BucketReduction {
 public:
  std::string name() const override { return "all-reduce, applied one step later"; }
  bool is_delayed() const override { return true; }
  bool keeps_state() const override { return true; }
  /// @throws Unsupported in a step that is captured.
  BucketExchange exchange(GradBucket& bucket) override;

  /// "NAME" for each parameter: the averages that the next backward leaves, equal on all ranks.
  /// Empty before the first. Waits for what is under way, and for the device.
  NamedTensors state_dict();
  /// Takes over what `state_dict` gave.
  /// @throws InvalidArgument for tensors that are not floating, and in the next backward for names
  /// and shapes that are not the model's.
  void load_state_dict(const NamedTensors& state);

 private:
  /// Gradients of a bucket on their way.
  struct Sent {
    std::vector<std::string> names;
    Tensor array;
    std::vector<Tensor> gradients;  // views of it
    std::vector<TensorWork> work;   // at most one; none once it was waited for
  };
  struct Average {
    std::shared_ptr<Sent> sent;
    Tensor value;
  };

  std::shared_ptr<Sent> start(GradBucket& bucket);
  Average take(const std::string& name, const Tensor& gradient);

  std::map<std::string, Average> averages_;  // by the parameters' names
};

}  // namespace lockstep::parallel
