#include "lockstep/optim/clip.hpp"

#include "backend/backend.hpp"
#include "backend/reduce.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::optim {

Tensor clip_grad_norm_(std::span<const Tensor> parameters, double max_norm) {
  LOCKSTEP_CHECK(max_norm >= 0, InvalidArgument, "clip_grad_norm_: the limit ", max_norm,
                 " must not be negative");
  const NoGradGuard no_recording;
  std::vector<Tensor> gradients;
  std::vector<ArrayView> views;
  for (const Tensor& parameter : parameters) {
    const Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    LOCKSTEP_CHECK(gradients.empty() || gradient.device() == gradients[0].device(), InvalidArgument,
                   "clip_grad_norm_: gradients are on ", gradient.device(), " and ",
                   gradients[0].device(), "; clip each device's on its own");
    gradients.push_back(gradient);
    views.push_back(gradient.view());
  }
  if (gradients.empty()) return zeros({}, {.dtype = DType::f64});
  const Device device = gradients[0].device();
  const StreamRef stream = current_stream(device);
  backend::MultiTensor& kernels = *backend::of(device).multi_tensor;
  const Tensor squares = empty({}, {DType::f64, device});
  kernels.square_sum(squares.view(), views, stream);
  kernels.clip(views, squares.view(), max_norm, stream);
  for (const Tensor& gradient : gradients) gradient.impl().storage->bump_version();
  return sqrt(squares);
}

}  // namespace lockstep::optim
