#include "lockstep/autograd/ops/sort.hpp"

#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "lockstep/autograd/ops/shape.hpp"

namespace lockstep {

LOCKSTEP_OP(argsort, any, follow, same)
LOCKSTEP_OP(searchsorted, numeric, widest, same)
LOCKSTEP_OP(sort, any, follow, same)
LOCKSTEP_OP(topk, numeric, follow, same)

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
  if (largest) {
    const Tensor rows = x.detach().transpose(d, -1).contiguous();
    positions = largest_positions(rows, k).transpose(d, -1).contiguous();
  } else {
    positions = argsort(x, d).narrow(d, 0, k);
  }
  return {gather(x, d, positions), positions};
}

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
