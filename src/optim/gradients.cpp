#include "optim/gradients.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <unordered_set>

#include "autograd/held_memory.hpp"
#include "backend/backend.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "tensor/write_note.hpp"

namespace lockstep::optim {
namespace {

const kernels::MultiTensorKernels& kernels_of(Device device) {
  return backend::of(device).multi_tensor;
}

TensorOptions f64_on(Device device) { return {.dtype = DType::f64, .device = device}; }

}  // namespace

void check_holds_weights(const Tensor& parameter, std::string_view user) {
  LOCKSTEP_CHECK(
      !autograd::HeldMemory::has(parameter), InvalidArgument, user,
      " is to change a parameter of shape ", parameter.shape(),
      " that holds its average, and would lose that; swap_out() the WeightAverage first");
}

void check_update(const Tensor& parameter) {
  check_holds_weights(parameter);
  if (parameter.requires_grad() && parameter.is_leaf()) autograd::leaf_of(parameter).check_update();
}

void warn_of_own_gradients(std::string_view user, std::span<const Tensor> parameters) {
  static std::atomic<bool> is_said = false;
  if (is_said) return;
  const Tensor* averaged = nullptr;
  const Tensor* own = nullptr;
  for (const Tensor& each : parameters) {
    if (!each.is_leaf() || !each.requires_grad() || !each.grad().defined()) continue;
    (autograd::leaf_of(each).is_averaged() ? averaged : own) = &each;
  }
  if (averaged && own && !is_said.exchange(true))
    LOCKSTEP_LOG(
        warning, user, ": gradients that a DistributedDataParallel averages over ranks are ",
        "clipped by one norm with that of a parameter of shape ", own->shape(),
        ", which none averages: ranks whose norms differ get different replicas. Clip them "
        "apart, unless you average the others yourself");
}

Gradients::Gradients(const char* user, std::span<const Tensor> parameters, const Spread& spread)
    : group_(spread.group), purpose_(spread.purpose) {
  const auto is_replicated = [&](const Tensor& parameter) {
    return std::ranges::any_of(spread.replicated,
                               [&](const Tensor& other) { return other.is_same(parameter); });
  };
  std::vector<Tensor> replicated;
  std::unordered_set<const TensorImpl*> seen;
  std::size_t found = 0;
  for (const Tensor& parameter : parameters) {
    if (!seen.insert(&parameter.impl()).second) continue;
    const autograd::GradientShare share = autograd::share_of(parameter);
    LOCKSTEP_CHECK(share != autograd::GradientShare::none, InvalidArgument, user,
                   ": the gradients of the module's parameters are shared out over ranks; give the "
                   "parameters of the DistributedDataParallel, and its shard_group");
    LOCKSTEP_CHECK(group_ || !spread.is_summed || share == autograd::GradientShare::whole,
                   InvalidArgument, user,
                   ": the parameters are this rank's shards, so that it knows a part of the "
                   "gradients; give the group of the ranks that share them out");
    const bool alike = is_replicated(parameter);
    if (alike) ++found;
    // One that a program gave to several parameters counts once, and is changed once.
    if (const Tensor gradient = parameter.grad();
        gradient.defined() && seen.insert(&gradient.impl()).second)
      (alike && group_ ? replicated : tensors_).push_back(gradient);
  }
  LOCKSTEP_CHECK(found == spread.replicated.size(), InvalidArgument, user, ": ",
                 spread.replicated.size(), " tensors are said to be replicated, but ", found,
                 " of them are among the parameters; give parameters of the same list");
  counted_on_each_rank_ = tensors_.size();
  tensors_.insert(tensors_.end(), replicated.begin(), replicated.end());
  for (const Tensor& gradient : tensors_) {
    LOCKSTEP_CHECK(gradient.device() == device(), InvalidArgument, user, ": gradients are on ",
                   gradient.device(), " and ", device(), "; give each device's on their own");
    views_.push_back(gradient.view());
  }
}

Tensor Gradients::local_square_sum(std::span<const ArrayView> views) const {
  if (views.empty()) return zeros({2}, f64_on(device()));
  const Tensor sum = lockstep::empty({2}, f64_on(device()));
  kernels_of(device()).square_sum({.out = sum.view(), .arrays = views}, current_stream(device()));
  return sum;
}

Tensor Gradients::sum_over_ranks(const Tensor& value) const {
  return parallel::all_reduce_async(value, *group_, comm::ReduceOp::sum(), purpose_).wait();
}

Tensor Gradients::square_sum() const {
  Tensor sum = local_square_sum(views().first(counted_on_each_rank_));
  if (group_) sum = sum_over_ranks(sum);
  if (counted_on_each_rank_ < views_.size())
    sum.add_(local_square_sum(views().subspan(counted_on_each_rank_)));
  return sum;
}

/// The largest over the ranks; NaN if any is, which a communicator's maximum need not tell.
Tensor Gradients::largest_over_ranks(const Tensor& value) const {
  const Tensor is_nan = ne(value, value).to(DType::f64);
  const Tensor both = stack(std::array{value, is_nan});
  const Tensor most =
      parallel::all_reduce_async(both, *group_, comm::ReduceOp::max(), purpose_).wait();
  const Tensor nan = full({}, std::nan(""), f64_on(device()));
  return where(ne(most.select(0, 1), 0.0), nan, most.select(0, 0));
}

/// The value of each gradient, in f64, taken over all of them and the ranks. @param combine of what
/// there is and a gradient's magnitudes @param over_ranks of a value of this rank's
template <class Combine, class OverRanks>
Tensor Gradients::total_of(const Combine& combine, const OverRanks& over_ranks) const {
  Tensor total = zeros({}, f64_on(device()));
  const auto add = [&](std::span<const Tensor> gradients) {
    for (const Tensor& gradient : gradients)
      if (gradient.numel() > 0) total = combine(total, abs(gradient.to(DType::f64)));
  };
  const auto all = std::span(tensors_);
  add(all.first(counted_on_each_rank_));
  if (group_) total = over_ranks(total);
  add(all.subspan(counted_on_each_rank_));
  return total;
}

Tensor Gradients::norm(double p) const {
  const Tensor largest = total_of(
      [](const Tensor& most, const Tensor& magnitudes) { return maximum(most, amax(magnitudes)); },
      [&](const Tensor& most) { return largest_over_ranks(most); });
  if (std::isinf(p)) return largest;
  // Powers of what is at most 1 neither overflow nor all vanish.
  const Tensor unit = where(logical_and(isfinite(largest), largest > 0.0), largest, 1.0);
  const Tensor sum_of_powers = total_of(
      [&](const Tensor& sum, const Tensor& magnitudes) {
        const Tensor shares = magnitudes / unit;
        return sum + lockstep::sum(p == 1 ? shares : pow(shares, p));
      },
      [&](const Tensor& sum) { return sum_over_ranks(sum); });
  return unit * pow(sum_of_powers, 1 / p);
}

Tensor Gradients::divide(const Tensor& divisor) const {
  if (views_.empty()) return square_sum();
  const Tensor sum = lockstep::empty({2}, f64_on(device()));
  kernels_of(device()).divide(
      {.arrays = views_, .divisor = divisor.view(), .square_sum = sum.view()},
      current_stream(device()));
  note_write();
  return group_ ? sum_over_ranks(sum) : sum;
}

void Gradients::note_write() const {
  for (const Tensor& gradient : tensors_) lockstep::note_write(gradient);
}

MeasuredGradients measure(const Tensor& square_sum, const Tensor& loss_scale, double limit) {
  const Device device = square_sum.device();
  const Tensor all = empty({3}, f64_on(device));
  const MeasuredGradients measured{all.select(0, 0), all.select(0, 1), all.select(0, 2)};
  kernels_of(device).gradient_scaling(
      {.square_sum = square_sum.view(),
       .loss_scale = loss_scale.defined() ? loss_scale.view() : ArrayView{},
       .limit = limit,
       .norm = measured.norm.view(),
       .divisor = measured.divisor.view(),
       .found_inf = measured.found_inf.view()},
      current_stream(device));
  return measured;
}

}  // namespace lockstep::optim
