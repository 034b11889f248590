#include "lockstep/autograd/ops/sort.hpp"

#include <algorithm>

#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/indexing.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/autograd/ops/shape.hpp"

namespace lockstep {

LOCKSTEP_OP(argsort, any, follow, same)
LOCKSTEP_OP(median, numeric, follow, same)
LOCKSTEP_OP(quantile, floating, follow, same)
LOCKSTEP_OP(searchsorted, numeric, widest, same)
LOCKSTEP_OP(sort, any, follow, same)
LOCKSTEP_OP(topk, numeric, follow, same)
LOCKSTEP_OP(unique, any, follow, same)

namespace {

using namespace autograd;

/// The k largest of each line in falling order; the line runs along the last dimension of `rows`.
Tensor largest_positions(const Tensor& rows, std::int64_t k) {
  Shape shape = rows.shape();
  shape.back() = k;
  const Tensor values = empty(shape, rows.options());
  Tensor positions = empty(shape, {DType::i64, rows.device()});
  backend_of(rows).reduction.topk(
      {.values = values.view(), .indices = positions.view(), .in = rows.view(), .k = k},
      stream_of(rows));
  return positions;
}

}  // namespace

Tensor argsort(const Tensor& x_in, std::int64_t dim, bool descending) {
  if (x_in.dim() == 0)
    return of_one_element(x_in, [&](const Tensor& x) { return argsort(x, dim, descending); });
  const OpCall call(ops::argsort, x_in);
  const Tensor& x = call[0];
  const int d = wrap_dim(dim, x.dim());
  Tensor out = empty(x.shape(), {DType::i64, x.device()});
  backend_of(x).order.argsort(
      {.out = out.view(), .in = x.view(), .dim = d, .descending = descending}, stream_of(x));
  return out;
}

std::pair<Tensor, Tensor> sort(const Tensor& x, std::int64_t dim, bool descending) {
  if (x.dim() == 0)
    return of_one_element(x, [&](const Tensor& line) { return sort(line, dim, descending); });
  const ComposedOp call(ops::sort, x);
  const Tensor positions = argsort(x, dim, descending);
  return {gather(x, dim, positions), positions};
}

Unique unique(const Tensor& x) {
  const ComposedOp call(ops::unique, x);
  const NoGradGuard no_recording;
  const auto [sorted, positions] = sort(x.detach().reshape({-1}), 0);
  const std::int64_t count = sorted.numel();
  Tensor is_first = ones({count}, {DType::boolean, x.device()});
  if (count > 1)
    is_first.slice(0, 1, count).copy_(sorted.slice(0, 1, count) != sorted.slice(0, 0, count - 1));
  const Tensor places = cumsum(is_first.to(DType::i64), 0) - 1;
  const Tensor values = masked_select(sorted, is_first);
  return {
      .values = values,
      .inverse = scatter(zeros({count}, places.options()), 0, positions, places).reshape(x.shape()),
      .counts = bincount(places, values.numel())};
}

std::pair<Tensor, Tensor> topk(const Tensor& x, std::int64_t k, std::int64_t dim, bool largest) {
  if (x.dim() == 0) {
    LOCKSTEP_CHECK(k == 1, InvalidArgument, ops::topk.name, ": k = ", k,
                   " of a tensor without dimensions, which is one element");
    return of_one_element(x, [&](const Tensor& line) { return topk(line, k, dim, largest); });
  }
  const ComposedOp call(ops::topk, x);
  const int d = wrap_dim(dim, x.dim());
  LOCKSTEP_CHECK(k >= 0 && k <= x.shape()[d], InvalidArgument, call.name(), ": k = ", k,
                 " is outside [0, ", x.shape()[d], "], the dimension's extent");
  Tensor positions;
  // A GPU goes through the line for each of the k, and a CPU keeps them in order as it goes: of
  // many a sort is faster.
  const std::int64_t most =
      x.device().is_cpu() ? std::max<std::int64_t>(24, x.shape()[d] / 64) : 32;
  if (largest && k <= most) {
    const Tensor rows = x.detach().transpose(d, -1).contiguous();
    positions = largest_positions(rows, k).transpose(d, -1).contiguous();
  } else {
    positions = argsort(x, d, largest).narrow(d, 0, k).clone();  // not of all that is sorted
  }
  return {gather(x, d, positions), positions};
}

std::pair<Tensor, Tensor> median(const Tensor& x, std::int64_t dim, bool keepdim) {
  if (x.dim() == 0)
    return of_one_element(x, [&](const Tensor& line) { return median(line, dim, false); });
  const ComposedOp call(ops::median, x);
  const int d = wrap_dim(dim, x.dim());
  const std::int64_t length = x.shape()[d];
  LOCKSTEP_CHECK(length > 0, InvalidArgument, call.name(), ": dimension ", d, " of shape ",
                 x.shape(), " has no middle element");
  Tensor place = argsort(x, d).narrow(d, (length - 1) / 2, 1);
  if (is_floating(x.dtype())) {
    const Tensor largest = argmax(x, d, true);  // the first NaN, if there are any
    place = where(isnan(gather(x.detach(), d, largest)), largest, place);
  }
  const Tensor y = gather(x, d, place);
  return keepdim ? std::pair(y, place) : std::pair(y.squeeze(d), place.squeeze(d));
}

Tensor median(const Tensor& x_in) {
  const OpCall call(ops::median, x_in);
  const Tensor& x = call[0];
  const Tensor y = no_grad([&] { return median(x.reshape({-1}), 0).first; });
  if (!call.recording()) return y;
  const auto backward = [x = SavedTensor(x), y = SavedTensor::of_result(y)](
                            const Tensor& dy, InputGradients& inputs) {
    const Tensor middle = logical_or(eq(x.get(), y.get()), isnan(x.get()));
    const DType wide = statistics_dtype(dy.dtype());
    const Tensor share = (dy.to(wide) / sum(middle).to(wide)).to(dy.dtype());
    inputs.set(0, masked_fill(share.expand(middle.shape()), logical_not(middle), 0.0));
  };
  return call.record(y, Differentiable{backward});
}

namespace {

void check_share(double q) {
  LOCKSTEP_CHECK(q >= 0 && q <= 1, InvalidArgument, ops::quantile.name, ": q = ", q,
                 " is outside [0, 1]");
}

/// @throws InvalidArgument for shares that are none, as far as that is known without waiting.
void check_shares(const Tensor& q) {
  LOCKSTEP_CHECK(q.dim() <= 1 && is_floating(q.dtype()), InvalidArgument, ops::quantile.name,
                 ": q has shape ", q.shape(), " and dtype ", q.dtype(),
                 "; it needs one dimension or none, floating");
  if (!q.device().is_cpu()) return;
  for (const double share : q.to_vector<double>()) check_share(share);
}

/// @param q of x's device, known to be shares.
Tensor quantile_of(const Tensor& x_in, const Tensor& q, std::int64_t dim, bool keepdim) {
  if (x_in.dim() == 0) return quantile_of(x_in.reshape({1}), q, dim, false);
  const ComposedOp call(ops::quantile, x_in);
  const Tensor& x = call[0];
  const int d = wrap_dim(dim, x.dim());
  const std::int64_t last = x.shape()[d] - 1;
  LOCKSTEP_CHECK(last >= 0, InvalidArgument, call.name(), ": dimension ", d, " of shape ",
                 x.shape(), " has no elements");
  const DType wide = statistics_dtype(x.dtype());
  const Tensor sorted = sort(x.to(wide), d).first.unsqueeze(0).transpose(0, d + 1);
  const Tensor rank = q.to(DType::f64).reshape({-1}) * static_cast<double>(last);
  const Tensor below = floor(rank);
  Shape along = Dims::filled(sorted.dim(), 1);
  along[0] = rank.numel();
  const auto at = [&](const Tensor& place) {
    return index_select(sorted, 0, place.to(DType::i64));
  };
  Tensor y = lerp(at(below), at(ceil(rank)), (rank - below).to(wide).reshape(along));
  const Tensor largest = sorted.narrow(0, last, 1);
  y = where(isnan(largest), largest, y).to(x.dtype());
  if (!keepdim) y = y.squeeze(d + 1);
  return q.dim() == 0 ? y.squeeze(0) : y;
}

}  // namespace

Tensor quantile(const Tensor& x, const Tensor& q, std::int64_t dim, bool keepdim) {
  check_shares(q);
  return quantile_of(x, q.to(x.device()), dim, keepdim);
}

Tensor quantile(const Tensor& x, const Tensor& q) { return quantile(x.reshape({-1}), q, 0); }

Tensor quantile(const Tensor& x, double q, std::int64_t dim, bool keepdim) {
  check_share(q);
  return quantile_of(x, scalar(q, {DType::f64, x.device()}), dim, keepdim);
}

Tensor quantile(const Tensor& x, double q) { return quantile(x.reshape({-1}), q, 0); }

Tensor searchsorted(const Tensor& sorted_in, const Tensor& values_in, bool right) {
  const OpCall call(ops::searchsorted, sorted_in, values_in);
  const Tensor& sorted = call[0];
  if (values_in.dim() == 0) return searchsorted(sorted_in, values_in.reshape({1}), right)[0];
  const Tensor& values = call[1];
  Shape lines = values.shape();
  if (sorted.dim() > 0) lines.back() = sorted.size(-1);
  LOCKSTEP_CHECK(sorted.dim() == 1 || sorted.shape() == lines, InvalidArgument, call.name(),
                 ": sorted lines of shape ", sorted.shape(), " do not fit values of ",
                 values.shape(), "; they need one dimension, or equal leading ones");
  Tensor out = empty(values.shape(), {DType::i64, values.device()});
  backend_of(values).order.search({.out = out.view(),
                                   .sorted = broadcast_view(sorted, lines),
                                   .values = values.view(),
                                   .right = right},
                                  stream_of(values));
  return out;
}

}  // namespace lockstep
