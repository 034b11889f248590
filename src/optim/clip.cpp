#include "lockstep/optim/clip.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "core/exact_number.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "optim/gradients.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::optim {
namespace {

Tensor norm_of(const Gradients& gradients, double norm_type, double limit) {
  if (norm_type == 2) return measure(gradients.square_sum(), {}, limit).norm;
  return gradients.norm(norm_type);
}

void check_known_norm(const ClipGradNormOptions& options, Device device) {
  const Tensor& norm = options.norm;
  LOCKSTEP_CHECK(!options.group, InvalidArgument,
                 "clip_grad_norm_: a norm that is known already, and a group of ranks over which "
                 "to take it; give one of them");
  LOCKSTEP_CHECK(norm.dtype() == DType::f64 && norm.numel() == 1 && norm.device() == device,
                 InvalidArgument, "clip_grad_norm_: a norm of shape ", norm.shape(), ", ",
                 norm.dtype(), " on ", norm.device(), "; it must be one f64 element on ", device);
}

/// Waits for the device.
void check_finite(const Tensor& norm) {
  const double value = norm.item();
  LOCKSTEP_CHECK(std::isfinite(value), Error, "clip_grad_norm_: the norm of the gradients is ",
                 value, ", and error_if_nonfinite is set; leave out the step, or end the run");
}

/// What ranks of a group must do alike.
std::string purpose_of(double max_norm, const ClipGradNormOptions& options) {
  if (!options.group) return {};
  return detail::concat("clip_grad_norm_ to ", detail::exact(max_norm), ", norm_type ",
                        detail::exact(options.norm_type));
}

/// Tells of it whoever averages the gradients, and compares what ranks do to the averages.
void announce(std::span<const Tensor> parameters, const std::string& how) {
  std::vector<Tensor> clipped;
  for (const Tensor& each : parameters)
    if (each.is_leaf() && each.requires_grad() && each.grad().defined()) clipped.push_back(each);
  const auto tell = [clipped, how] {
    for (const Tensor& each : clipped)
      if (each.requires_grad()) autograd::leaf_of(each).announce_clip(how);
  };
  if (StepRecording* const recording = StepRecording::current())
    recording->before_launch(tell);
  else
    tell();
}

/// Nothing where the norm is only taken. The group's exchange of it compares the limit.
void announce_norm(std::span<const Tensor> parameters, double max_norm,
                   const ClipGradNormOptions& options) {
  if (options.group || std::isinf(max_norm)) return;
  std::string how = "clip_grad_norm_ to " + detail::exact(max_norm);
  if (options.norm_type != 2) how += ", norm_type " + detail::exact(options.norm_type);
  announce(parameters, how);
}

}  // namespace

Tensor clip_grad_norm_(std::span<const Tensor> parameters, double max_norm,
                       const ClipGradNormOptions& options) {
  LOCKSTEP_CHECK(max_norm >= 0, InvalidArgument, "clip_grad_norm_: a limit of ", max_norm,
                 "; it must be a number from 0 on");
  LOCKSTEP_CHECK(options.norm_type > 0, InvalidArgument, "clip_grad_norm_: a norm_type of ",
                 options.norm_type, "; it must be above 0, or infinity");
  const NoGradGuard no_recording;
  const bool is_known = options.norm.defined();
  const Gradients gradients(
      "clip_grad_norm_", parameters,
      {options.group, options.replicated, purpose_of(max_norm, options), !is_known});
  if (gradients.empty()) return zeros({}, {.dtype = DType::f64});
  announce_norm(parameters, max_norm, options);
  if (!options.group && !is_known && !std::isinf(max_norm))
    warn_of_own_gradients("clip_grad_norm_", parameters);
  const Device device = gradients.device();
  if (is_known) check_known_norm(options, device);
  const Tensor norm = is_known ? options.norm : norm_of(gradients, options.norm_type, max_norm);
  if (options.error_if_nonfinite) check_finite(norm);
  backend::of(device).multi_tensor.clip(
      {.arrays = gradients.views(), .norm = norm.view(), .limit = max_norm},
      current_stream(device));
  gradients.note_write();
  return norm;
}

void clip_grad_value_(std::span<const Tensor> parameters, double limit) {
  LOCKSTEP_CHECK(limit >= 0, InvalidArgument, "clip_grad_value_: a limit of ", limit,
                 "; it must be a number from 0 on");
  const NoGradGuard no_recording;
  for (const Tensor& parameter : parameters)
    LOCKSTEP_CHECK(autograd::share_of(parameter) != autograd::GradientShare::none, InvalidArgument,
                   "clip_grad_value_: a parameter of shape ", parameter.shape(),
                   " has its gradient shared out over ranks; give the parameters of the "
                   "DistributedDataParallel, not of the module");
  announce(parameters, "clip_grad_value_ to " + detail::exact(limit));
  for (const Tensor& parameter : parameters)
    if (Tensor gradient = parameter.grad(); gradient.defined())
      gradient.copy_(clamp(gradient, -limit, limit));
}

}  // namespace lockstep::optim
