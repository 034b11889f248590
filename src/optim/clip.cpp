#include "lockstep/optim/clip.hpp"

#include <algorithm>
#include <unordered_set>

#include "backend/backend.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::optim {
namespace {

/// The gradients that there are: those that count on each rank, then those that count once.
struct Gradients {
  std::vector<Tensor> all;
  std::size_t counted_on_each_rank = 0;
};

Gradients gradients_of(std::span<const Tensor> parameters, const ClipGradNormOptions& options) {
  const auto is_replicated = [&](const Tensor& parameter) {
    return std::ranges::any_of(options.replicated,
                               [&](const Tensor& other) { return other.is_same(parameter); });
  };
  std::vector<Tensor> own, replicated;
  std::unordered_set<const TensorImpl*> seen;
  std::size_t found = 0;
  for (const Tensor& parameter : parameters) {
    if (!seen.insert(&parameter.impl()).second) continue;
    const bool alike = is_replicated(parameter);
    if (alike) ++found;
    if (const Tensor gradient = parameter.grad(); gradient.defined())
      (alike && options.group ? replicated : own).push_back(gradient);
  }
  LOCKSTEP_CHECK(found == options.replicated.size(), InvalidArgument,
                 "clip_grad_norm_: ", options.replicated.size(),
                 " tensors are said to be replicated, but ", found,
                 " of them are among the parameters; give parameters of the same list");
  Gradients gradients{std::move(own), 0};
  gradients.counted_on_each_rank = gradients.all.size();
  gradients.all.insert(gradients.all.end(), replicated.begin(), replicated.end());
  return gradients;
}

/// @throws InvalidArgument unless all are on the device.
std::vector<ArrayView> views_of(std::span<const Tensor> gradients, Device device) {
  std::vector<ArrayView> views;
  for (const Tensor& gradient : gradients) {
    LOCKSTEP_CHECK(gradient.device() == device, InvalidArgument,
                   "clip_grad_norm_: gradients are on ", gradient.device(), " and ", device,
                   "; clip each device's on its own");
    views.push_back(gradient.view());
  }
  return views;
}

Tensor square_sum(std::span<const ArrayView> views, Device device) {
  const TensorOptions options{.dtype = DType::f64, .device = device};
  if (views.empty()) return zeros({}, options);
  const Tensor sum = empty({}, options);
  backend::of(device).multi_tensor.square_sum({.out = sum.view(), .arrays = views},
                                              current_stream(device));
  return sum;
}

}  // namespace

Tensor clip_grad_norm_(std::span<const Tensor> parameters, double max_norm,
                       const ClipGradNormOptions& options) {
  LOCKSTEP_CHECK(max_norm >= 0, InvalidArgument, "clip_grad_norm_: the limit ", max_norm,
                 " must not be negative");
  const NoGradGuard no_recording;
  const auto [gradients, counted_on_each_rank] = gradients_of(parameters, options);
  Communicator* const group = options.group.get();
  if (gradients.empty() && !group) return zeros({}, {.dtype = DType::f64});
  const Device device = group ? group->device() : gradients[0].device();
  const std::vector<ArrayView> views = views_of(gradients, device);
  const std::span<const ArrayView> all(views);
  Tensor squares = square_sum(all.first(counted_on_each_rank), device);
  if (group) squares = parallel::all_reduce_async(squares, *group).wait();
  if (counted_on_each_rank < all.size())
    squares.add_(square_sum(all.subspan(counted_on_each_rank), device));
  backend::of(device).multi_tensor.clip(
      {.arrays = views, .square_sum = squares.view(), .limit = max_norm}, current_stream(device));
  for (const Tensor& gradient : gradients) gradient.impl().storage->bump_version();
  return sqrt(squares);
}

void clip_grad_value_(std::span<const Tensor> parameters, double limit) {
  LOCKSTEP_CHECK(limit >= 0, InvalidArgument, "clip_grad_value_: a limit of ", limit,
                 "; it must not be negative");
  const NoGradGuard no_recording;
  for (const Tensor& parameter : parameters)
    if (Tensor gradient = parameter.grad(); gradient.defined())
      gradient.copy_(clamp(gradient, -limit, limit));
}

}  // namespace lockstep::optim
