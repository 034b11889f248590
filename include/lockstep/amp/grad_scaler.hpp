#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/tensor/host_copy.hpp"
#include "lockstep/tensor/named_tensors.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Loss scaling (Micikevicius et al. 2018): keeps small f16 gradients from vanishing.

namespace lockstep::amp {

/// So many steps in a row had gradients that are not finite that no loss scale will help.
class GradientOverflow : public Error {
 public:
  /// @param message, where see Error.
  explicit GradientOverflow(const std::string& message,
                            std::source_location where = std::source_location::current())
      : Error(message, where) {}
};

/// Options of a GradScaler; names and defaults are PyTorch's where it has them.
struct GradScalerOptions {
  double init_scale = 65536.0;  ///< the first step's
  double growth_factor = 2.0;   ///< after `growth_interval` steps in a row that were made
  double backoff_factor = 0.5;  ///< after a step that was skipped
  std::int64_t growth_interval = 2000;
  bool enabled = true;  ///< false: everything passes unchanged
  /// Steps skipped in a row that end the training with a GradientOverflow.
  std::int64_t max_skipped_steps = 40;
  /// The ranks that hold different parts of the gradients and must skip together: those that share
  /// out a layer's weights, the layers, or the optimizer's state. Null: each rank has all gradients
  /// as all others have them, as in data parallelism after backward, so that all decide alike.
  CommunicatorPtr group = nullptr;

  /// @throws InvalidArgument for values out of range.
  void check() const;
};

/// Multiplies the loss by a scale, so that gradients of f16 do not vanish, takes the scale off
/// again in the optimizer's step, and skips a step whose gradients are not finite:
///
///     amp::GradScaler scaler;
///     ...
///     scaler.scale(loss).backward();
///     scaler.step(optimizer);                         // or clip_and_step(optimizer, 1.0)
///     scaler.update();
///
/// Scale, counters and what was found live on the device of the loss, and nothing waits for them. A
/// skipped step changes no parameter and no state, and is not counted. One thread at a time.
class GradScaler {
 public:
  /// @throws InvalidArgument for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// The loss times the scale; f16 and bf16 ones as f32, whose range the product needs. Recorded.
  /// @param loss any shape, of floating dtype, always on the same device.
  Tensor scale(const Tensor& loss);
  /// Divides the gradients of an optimizer's parameters by the scale, for whoever looks at them
  /// before `step`. At most once for each step; needless otherwise.
  /// @return their norm then, over all ranks of the group, each of which holds others, for
  /// `optim::ClipGradNormOptions::norm`; undefined if not enabled.
  /// @throws InvalidArgument a second time, before any `scale`, if there are no gradients, and for
  /// f16 gradients: divided, small ones would vanish in that dtype.
  Tensor unscale_(optim::Optimizer& optimizer);
  /// `optimizer.step()`, with the scale taken off, unless a gradient is not finite. Reads the
  /// gradients once for that, and leaves them as they are. With a group all its ranks must call
  /// this, and so `unscale_`, alike.
  /// @throws InvalidArgument a second time without `update`, and if there are no gradients.
  void step(optim::Optimizer& optimizer);
  /// The same by gradients that are clipped as `optim::clip_grad_norm_` would, the joint norm being
  /// that of all of the optimizer's parameters. One pass over them finds norm and inf; scale and
  /// clipping are applied as the optimizer reads them. If not enabled, it clips and steps alike.
  /// @param replicated those of the parameters that all ranks of the group hold alike.
  /// @return the norm before clipping, without the scale: an f64 scalar on the device.
  /// @throws InvalidArgument as `step`, and as `optim::clip_grad_norm_`.
  Tensor clip_and_step(optim::Optimizer& optimizer, double max_norm,
                       std::span<const Tensor> replicated = {});
  /// Sets the next step's scale, by what was found for all optimizers since the last time.
  /// @param new_scale to be used in the place of that.
  /// @throws GradientOverflow after too many skipped steps, which is known a few steps late, on all
  /// ranks in the same one; InvalidArgument if no optimizer made a step, or for a scale that is not
  /// finite and positive.
  void update(std::optional<double> new_scale = std::nullopt);

  /// False if nothing is scaled.
  bool is_enabled() const noexcept { return options_.enabled; }
  /// The scale in use; 1 if not enabled. Waits for the device.
  double get_scale() const;

  /// What a checkpoint must keep: "scale", "growth_tracker" (steps in a row that were made),
  /// "skipped_steps", and the options. Waits for the device.
  NamedTensors state_dict() const;
  /// Takes over what `state_dict` gave. Changes nothing if it throws.
  /// @throws InvalidArgument for keys that are missing or not known, and values out of range.
  void load_state_dict(const NamedTensors& state);

 private:
  /// What was done with an optimizer's gradients since the last update.
  struct Seen {
    const optim::Optimizer* optimizer;
    Tensor found_inf;
    bool unscaled = false, stepped = false;
    bool is_of_launch = false;  // a captured step's, and found anew with each launch
  };

  void move_to(Device device);
  void place(double scale, std::int64_t finite_steps, std::int64_t skipped_steps, Device device);
  Seen& find(const optim::Optimizer& optimizer);
  void check_scaled() const;
  Tensor take_step(optim::Optimizer& optimizer, std::optional<double> limit,
                   std::span<const Tensor> replicated);
  void join_recording();
  void count_update();
  void check_skipped();
  std::string describe(std::optional<double> limit = std::nullopt) const;
  void note_change(const std::string& how);
  std::string purpose_of_step(const Seen& seen, std::optional<double> limit) const;

  GradScalerOptions options_;
  bool placed_ = false;                          // on the device of a loss
  Tensor scale_, finite_steps_, skipped_steps_;  // f64, i64, i64
  std::vector<Seen> seen_;
  std::uint64_t updates_ = 0, changes_ = 0;
  std::uint64_t losses_ = 0;         // scaled since the last update
  std::string change_;               // the last from outside
  std::optional<HostCopy> skipped_;  // on its way to be looked at
};

}  // namespace lockstep::amp
