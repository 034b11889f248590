#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/optim/parameter_list.hpp"

/// @file
/// Averages of weights over the steps of training.

namespace lockstep {
class StepRecording;
namespace autograd {
class HeldMemory;
}
}  // namespace lockstep

namespace lockstep::optim {

/// How a WeightAverage weighs.
struct WeightAverageOptions {
  /// Each update leaves so much of the average: an exponential moving average. None: all updates
  /// count alike, as in stochastic weight averaging (Izmailov et al. 2018).
  std::optional<double> decay = 0.999;
};

/// A running average of parameters, in f32 (f64 for f64 parameters), to be evaluated in their
/// place:
///
///     optim::WeightAverage average(model->named_parameters(), {.decay = 0.999});
///     ... optimizer.step(); average.update();
///     {
///       const auto averaged = average.swap_in();
///       evaluate(*model);
///     }  // the trained weights are back
///
/// The first update takes over the parameters as they are. On a GPU an update is one launch for all
/// parameters of a dtype, and waits for nothing. In data parallelism every rank does the same.
/// Buffers of floating dtype that a model needs averaged too (running_mean and running_var of batch
/// norm, not its count num_batches_tracked) may be among the parameters; others stay as they are.
/// Those of ranks differ behind a forward, and so do their averages: rank 0's are saved, and
/// DistributedDataParallel::send_buffers() behind `swap_in`, as train::Step::evaluation() calls it,
/// gives them to all.
class WeightAverage {
 public:
  /// @param parameters contiguous, of floating dtype. @throws InvalidArgument for others, none at
  /// all, or a decay outside [0, 1].
  explicit WeightAverage(const ParameterList& parameters, const WeightAverageOptions& options = {});
  WeightAverage(const WeightAverage&) = delete;
  WeightAverage& operator=(const WeightAverage&) = delete;

  /// Takes in the parameters as they are. @throws InvalidArgument while the averages are swapped
  /// in, and for a parameter that has moved to another device, or from or to f64.
  void update();
  /// How many updates the average has seen.
  std::int64_t updates() const noexcept { return updates_; }
  /// How it weighs.
  const WeightAverageOptions& options() const noexcept { return options_; }
  /// The keys, of state_dict(), of the averages of what required no gradient when this was made:
  /// buffers.
  std::vector<std::string> keys_of_buffers() const;

  /// The averages are in the parameters until the end of its life, or `swap_out`. It may outlive
  /// the WeightAverage.
  class [[nodiscard]] Swapped {
   public:
    Swapped(Swapped&&) noexcept = default;
    Swapped& operator=(Swapped&&) = delete;
    ~Swapped();

   private:
    friend class WeightAverage;
    explicit Swapped(std::shared_ptr<autograd::HeldMemory> held) : held_(std::move(held)) {}

    std::shared_ptr<autograd::HeldMemory> held_;
  };
  /// Keeps the parameters' values aside and lets them have the averages, rounded to their dtype.
  /// Optimizers refuse to change them meanwhile. Parameters that ranks share out (zero_stage 3)
  /// have them until the end of whole_parameters(), which gives them back what they held, too.
  /// @throws InvalidArgument if they have them already, or another's, or there was no update.
  Swapped swap_in();
  /// Gives the parameters back what they held. Does nothing where they hold it.
  void swap_out();

  /// The averages by the parameters' names: "fc.weight" (positions where there are none), in wide
  /// dtype; and "n_averaged", i64. Shares memory.
  NamedTensors state_dict() const;
  /// Takes over what `state_dict` gave. Changes nothing if it throws. @throws InvalidArgument
  /// naming a key that is missing or unexpected, or a shape or dtype that does not fit.
  void load_state_dict(const NamedTensors& state);

  /// @throws InvalidArgument while averages, these or another's, are in the parameters: a state of
  /// the parameters would be theirs, and one that is loaded into them would be gone with
  /// `swap_out`.
  void check_not_swapped() const;

 private:
  bool is_swapped_in() const;
  void check_not_held() const;
  void join_recording(StepRecording& recording);
  std::string key_of(std::size_t parameter) const;

  NamedTensors parameters_;
  std::vector<Tensor> averages_;
  std::vector<bool> are_buffers_;               // what required no gradient when this was made
  std::shared_ptr<autograd::HeldMemory> held_;  // the parameters', once they had averages
  WeightAverageOptions options_;
  std::int64_t updates_ = 0;
};

}  // namespace lockstep::optim
