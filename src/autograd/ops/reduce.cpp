#include "lockstep/autograd/ops/reduce.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "autograd/ops/recorded.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/indexing.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/shape.hpp"

namespace lockstep {

LOCKSTEP_OP(all, any, follow, same)
LOCKSTEP_OP(amax, numeric, follow, same)
LOCKSTEP_OP(amin, numeric, follow, same)
LOCKSTEP_OP(any, any, follow, same)
LOCKSTEP_OP(argmax, numeric, follow, same)
LOCKSTEP_OP(argmin, numeric, follow, same)
LOCKSTEP_OP(cosine_similarity, floating, f32, same)
LOCKSTEP_OP(cumprod, any, f32, same)
LOCKSTEP_OP(cumsum, any, f32, same)
LOCKSTEP_OP(logsumexp, floating, f32, same)
LOCKSTEP_OP(max, numeric, follow, same)
LOCKSTEP_OP(mean, floating, follow, same)
LOCKSTEP_OP(min, numeric, follow, same)
LOCKSTEP_OP(norm, floating, f32, same)
LOCKSTEP_OP(normalize, floating, f32, same)
LOCKSTEP_OP(prod, any, f32, same)
LOCKSTEP_OP(std, floating, follow, same)
LOCKSTEP_OP(sum, any, f32, same)
LOCKSTEP_OP(var, floating, follow, same)

namespace {

using namespace autograd;

/// The place of a dimension that is reduced. One element without dimensions is what is left of 0.
int reduced_dim(std::int64_t dim, int rank) { return wrap_dim(dim, std::max(rank, 1)); }

/// The shape with every reduced dimension at extent 1.
Shape kept_shape(const Shape& shape, const Dims& dims) {
  if (dims.empty()) return Dims::filled(shape.size(), 1);
  Shape kept = shape;
  Dims seen = Dims::filled(std::max(shape.size(), 1), 0);
  for (const auto dim : dims) {
    const int d = reduced_dim(dim, shape.size());
    LOCKSTEP_CHECK(seen[d]++ == 0, InvalidArgument, "a reduction over dimensions ", dims,
                   " of shape ", shape, " names dimension ", d, " twice");
    if (d < shape.size()) kept[d] = 1;
  }
  return kept;
}

/// The shape without the reduced dimensions.
Shape dropped_shape(const Shape& shape, const Dims& dims) {
  if (dims.empty()) return {};
  Dims reduced = Dims::filled(std::max(shape.size(), 1), 0);
  for (const auto dim : dims) reduced[reduced_dim(dim, shape.size())] = 1;
  Shape dropped;
  for (int i = 0; i < shape.size(); ++i)
    if (!reduced[i]) dropped.push_back(shape[i]);
  return dropped;
}

/// The dtype of a sum: integers and bool are counted in i64.
DType sum_dtype(DType dtype) { return is_floating(dtype) ? dtype : DType::i64; }

/// Reduces to the kept shape, not recorded, into the input's dtype or that of a sum.
Tensor reduce_kept(ReduceOp op, const Tensor& x, const Shape& kept, DType dtype) {
  Tensor y = empty(kept, {dtype, x.device()});
  backend_of(x).reduction.reduce({.op = op, .out = y.view(), .in = x.view()}, stream_of(x));
  return y;
}

/// What the user gets of a result in the kept shape.
Tensor finish(const Tensor& kept, const Tensor& x, const Dims& dims, bool keepdim) {
  return keepdim ? kept : kept.reshape(dropped_shape(x.shape(), dims));
}

/// Records what the user gets as one op.
/// @param backward called with the gradient in the kept shape; Differentiable
template <class Backward>
Tensor record_finished(const OpCall<1>& call, const Tensor& kept, const Dims& dims, bool keepdim,
                       Backward&& backward) {
  return call.record(no_grad([&] { return finish(kept, call[0], dims, keepdim); }),
                     Differentiable{[dims, backward = std::forward<Backward>(backward)](
                                        const Tensor& dy, InputGradients& inputs) {
                       backward(dy.reshape(kept_shape(inputs.operand_shape(0), dims)), inputs);
                     }});
}

/// Sum or mean: the gradient is spread evenly.
Tensor linear_reduction(ReduceOp op, const OpDescriptor& descriptor, const Tensor& x_in,
                        const Dims& dims, bool keepdim) {
  const OpCall call(descriptor, x_in);
  const Tensor& x = call[0];
  const Shape kept = kept_shape(x.shape(), dims);
  const Tensor y = reduce_kept(op, x, kept, sum_dtype(x.dtype()));
  if (!call.recording()) return finish(y, x, dims, keepdim);
  const double factor = op == ReduceOp::mean
                            ? static_cast<double>(numel(kept)) /
                                  static_cast<double>(std::max<std::int64_t>(1, x.numel()))
                            : 1.0;
  return record_finished(call, y, dims, keepdim,
                         [factor](const Tensor& dy, InputGradients& inputs) {
                           const Tensor scaled = factor == 1.0 ? dy : mul(dy, factor);
                           inputs.set(0, scaled.expand(inputs.operand_shape(0)));
                         });
}

Tensor extreme(ReduceOp op, const OpDescriptor& descriptor, const Tensor& x_in, const Dims& dims,
               bool keepdim) {
  const OpCall call(descriptor, x_in);
  const Tensor& x = call[0];
  const Shape kept = kept_shape(x.shape(), dims);
  for (int i = 0; i < x.dim(); ++i)
    LOCKSTEP_CHECK(x.shape()[i] > 0 || kept[i] == 0, InvalidArgument, descriptor.name,
                   " over dimension ", i, " of shape ", x.shape(), ": no elements have no extreme");
  if (x.dtype() == DType::u8)  // no kernel compares bytes
    return finish(reduce_kept(op, x.to(DType::i32), kept, DType::i32).to(x.dtype()), x, dims,
                  keepdim);
  const Tensor y = reduce_kept(op, x, kept, x.dtype());
  if (!call.recording()) return finish(y, x, dims, keepdim);
  return record_finished(call, y, dims, keepdim,
                         [x = SavedTensor(x), y = SavedTensor::of_result(y)](
                             const Tensor& dy, InputGradients& inputs) {
                           // In 16 bits many equal ones have no number.
                           const Tensor hit = eq(x.get(), y.get().expand(x.get().shape()));
                           const Tensor count =
                               sum_to(hit.to(statistics_dtype(dy.dtype())), dy.shape());
                           const Tensor each = div(dy.to(count.dtype()), count).to(dy.dtype());
                           inputs.set(0, mul(hit.to(dy.dtype()), each));
                         });
}

Tensor arg_extreme(const OpDescriptor& descriptor, const Tensor& x, std::int64_t dim, bool largest,
                   bool keepdim) {
  if (x.dim() == 0)
    return of_one_element(x, [&](const Tensor& line) {
      return arg_extreme(descriptor, line, dim, largest, keepdim);
    });
  const OpCall call(descriptor, x);
  const int d = wrap_dim(dim, x.dim());
  LOCKSTEP_CHECK(x.shape()[d] > 0, InvalidArgument, descriptor.name,
                 " over an empty dimension of shape ", x.shape());
  Tensor y = empty(kept_shape(x.shape(), {d}), {DType::i64, x.device()});
  backend_of(x).reduction.arg_extreme(
      {.out = y.view(), .in = x.view(), .dim = d, .largest = largest}, stream_of(x));
  return finish(y, x, {d}, keepdim);
}

/// What stands at the position of the extreme along a dimension, and the position.
std::pair<Tensor, Tensor> extreme_and_place(const OpDescriptor& descriptor, const Tensor& x,
                                            std::int64_t dim, bool largest, bool keepdim) {
  if (x.dim() == 0)
    return of_one_element(x, [&](const Tensor& line) {
      return extreme_and_place(descriptor, line, dim, largest, keepdim);
    });
  const Tensor place = arg_extreme(descriptor, x, dim, largest, true);
  const Tensor value = gather(x, dim, place);
  if (keepdim) return {value, place};
  return {value.squeeze(dim), place.squeeze(dim)};
}

}  // namespace

namespace autograd {

Tensor sum_to(Tensor gradient, const Shape& shape) {
  if (gradient.shape() == shape) return gradient;
  const Tensor sum = empty(shape, gradient.options());
  sum_into(sum, gradient, false);
  if (!recording(gradient)) return sum;
  const OpDescriptor op = adjoint_of(ops::sum.name);
  return OpCall(op, gradient)
      .record(sum,
              Differentiable{[wide = gradient.shape()](const Tensor& dy, InputGradients& inputs) {
                return inputs.set(0, dy.expand(wide));
              }});
}

void sum_into(const Tensor& out, const Tensor& gradient, bool accumulate) {
  // Align the target with the gradient's rank; every extent that differs is summed.
  ArrayView kept = out.view();
  while (kept.rank() < gradient.dim()) {
    kept.shape.insert(0, 1);
    kept.strides.insert(0, 1);
  }
  backend_of(gradient).reduction.reduce(
      {.op = ReduceOp::sum, .out = kept, .in = gradient.view(), .accumulate = accumulate},
      stream_of(gradient));
}

void write_sum_to(InputGradients& inputs, std::size_t i, const Tensor& gradient) {
  if (!inputs.wanted(i)) return;
  const Shape shape = inputs.operand_shape(i);
  if (gradient.shape() == shape || inputs.creates_graph())
    return inputs.set(i, sum_to(gradient, shape));
  inputs.write(i, shape, gradient.options(),
               [&](const Tensor& out, bool accumulate) { sum_into(out, gradient, accumulate); });
}

}  // namespace autograd

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  return linear_reduction(ReduceOp::sum, ops::sum, x, dims, keepdim);
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  return linear_reduction(ReduceOp::mean, ops::mean, x, dims, keepdim);
}

namespace {

/// The product along each dimension that has the extent 1 in `kept`, pair by pair: no division.
Tensor product_to(Tensor x, const Shape& kept) {
  for (int d = 0; d < kept.size(); ++d) {
    if (kept[d] != 1) continue;
    if (x.size(d) == 0) {
      Shape none = x.shape();
      none[d] = 1;
      x = ones(none, x.options());
    }
    while (x.size(d) > 1) {
      const std::int64_t half = x.size(d) / 2, rest = x.size(d) - 2 * half;
      const Tensor pairs = x.narrow(d, 0, half) * x.narrow(d, half, half);
      x = rest ? cat({pairs, x.narrow(d, 2 * half, 1)}, d) : pairs;
    }
  }
  return x;
}

}  // namespace

Tensor prod(const Tensor& x_in, const Dims& dims, bool keepdim) {
  const OpCall call(ops::prod, x_in);
  const Tensor& x = call[0];
  const Shape kept = kept_shape(x.shape(), dims);
  const Tensor y = reduce_kept(ReduceOp::prod, x, kept, sum_dtype(x.dtype()));
  if (!call.recording()) return finish(y, x, dims, keepdim);
  return record_finished(
      call, y, dims, keepdim, [x = SavedTensor(x), kept](const Tensor& dy, InputGradients& inputs) {
        if (inputs.creates_graph())
          return set_composed(
              inputs, dy, {inputs.operand(0, x)}, [kept](std::span<const Tensor> in) {
                const DType dtype = in[0].dtype();
                return product_to(in[0].to(statistics_dtype(dtype)), kept).to(dtype);
              });
        // The product of all others: with one 0 it differs from 0 only there, with two nowhere.
        const Tensor wide = x.get().to(statistics_dtype(x.get().dtype()));
        const Tensor is_zero = wide == 0.0;
        if (can_look_at(is_zero) && !any(is_zero).item<bool>()) {
          const Tensor slope = div(reduce_kept(ReduceOp::prod, wide, kept, wide.dtype()), wide);
          return inputs.set(0, mul(dy.to(slope.dtype()), slope).to(dy.dtype()));
        }
        const Tensor safe = masked_fill(wide, is_zero, 1.0);
        const Tensor others = reduce_kept(ReduceOp::prod, safe, kept, safe.dtype());
        const Tensor zeros_met = reduce_kept(ReduceOp::sum, is_zero, kept, DType::i64);
        const Tensor beside_zero = logical_and(zeros_met == 1.0, logical_not(is_zero));
        const Tensor quotient = div(others, safe);
        // 0 times an operand that is infinite or NaN must not be lost.
        const Tensor odd =
            reduce_kept(ReduceOp::sum, logical_not(isfinite(wide)), kept, DType::i64) > 0.0;
        const Tensor beside = masked_fill(quotient, beside_zero, 0.0);
        const Tensor slope = masked_fill(masked_fill(beside, logical_and(beside_zero, odd),
                                                     std::numeric_limits<double>::quiet_NaN()),
                                         zeros_met > 1.0, 0.0);
        inputs.set(0, mul(dy.to(slope.dtype()), slope).to(dy.dtype()));
      });
}

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  return extreme(ReduceOp::amax, ops::amax, x, dims, keepdim);
}
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  return extreme(ReduceOp::amin, ops::amin, x, dims, keepdim);
}

Tensor logsumexp(const Tensor& x_in, const Dims& dims, bool keepdim) {
  const ComposedOp call(ops::logsumexp, x_in);
  const Tensor x = call[0].to(statistics_dtype(call[0].dtype()));
  // The shift by the maximum is constant for the gradient; infinite maxima shift by 0, as does
  // that of no elements, whose sum of 0 has the logarithm -inf.
  const Shape kept = kept_shape(x.shape(), dims);
  Tensor shift =
      x.numel() == 0 ? zeros(kept, x.options()) : no_grad([&] { return amax(x, dims, true); });
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor zero = zeros({}, x.options());
  shift = where(eq(abs(shift), full({}, infinity, x.options())), zero, shift);
  const Tensor y = log(sum(exp(x - shift), dims, true)) + shift;
  return finish(y, x, dims, keepdim).to(call[0].dtype());
}

Tensor var(const Tensor& x_in, const Dims& dims, std::int64_t correction, bool keepdim) {
  const ComposedOp call(ops::var, x_in);
  const Tensor x = x_in.to(statistics_dtype(x_in.dtype()));
  const double kept = static_cast<double>(numel(kept_shape(x.shape(), dims)));
  const double count = static_cast<double>(x.numel()) / std::max(kept, 1.0);
  const Tensor nearly = x - mean(x, dims, true);
  // Where the mean is large it is rounded by as much as the deviation. What is left of it is 0 but
  // for that, and so constant.
  const Tensor centred = nearly - no_grad([&] { return mean(nearly, dims, true); });
  const double freedom = std::max(count - static_cast<double>(correction), 0.0);
  return (sum(square(centred), dims, keepdim) / freedom).to(x_in.dtype());
}

Tensor std(const Tensor& x, const Dims& dims, std::int64_t correction, bool keepdim) {
  const ComposedOp call(ops::std, x);
  const Tensor variance = var(x, dims, correction, keepdim);
  // At 0 the root has no slope: it counts as constant.
  const Tensor none = variance == 0.0;
  return masked_fill(sqrt(masked_fill(variance, none, 1.0)), none, 0.0);
}

namespace {

/// The 2-norm along the dimensions of extent 1 in `kept`. At 0 it counts as constant.
Tensor root_of_squares(const Tensor& x, const Shape& kept) {
  const Tensor squares = sum_to(square(x.to(statistics_dtype(x.dtype()))), kept);
  const Tensor none = squares == 0.0;
  return masked_fill(sqrt(masked_fill(squares, none, 1.0)), none, 0.0).to(x.dtype());
}

}  // namespace

Tensor norm(const Tensor& x_in, const Dims& dims, bool keepdim) {
  const OpCall call(ops::norm, x_in);
  const Tensor& x = call[0];
  const Shape kept = kept_shape(x.shape(), dims);
  const DType wide = statistics_dtype(x.dtype());
  const Tensor length =
      no_grad([&] { return sqrt(reduce_kept(ReduceOp::square_sum, x, kept, wide)); });
  const Tensor y = length.to(x.dtype());
  if (!call.recording()) return finish(y, x, dims, keepdim);
  return record_finished(call, y, dims, keepdim,
                         [x = SavedTensor(x), length = SavedTensor::of_result(length)](
                             const Tensor& dy, InputGradients& inputs) {
                           if (inputs.creates_graph())
                             return set_composed(inputs, dy, {inputs.operand(0, x)},
                                                 [kept = dy.shape()](std::span<const Tensor> in) {
                                                   return root_of_squares(in[0], kept);
                                                 });
                           const Tensor& r = length.get();
                           const Tensor zero = zeros({}, r.options());
                           const Tensor safe = where(eq(r, zero), ones({}, r.options()), r);
                           inputs.set(0, mul(x.get().to(r.dtype()), div(dy.to(r.dtype()), safe)));
                         });
}

Tensor normalize(const Tensor& x_in, double p, std::int64_t dim, double eps) {
  const ComposedOp call(ops::normalize, x_in);
  LOCKSTEP_CHECK(p > 0 && eps >= 0, InvalidArgument, call.name(), ": p = ", p, " and eps = ", eps,
                 "; p must be above 0 and eps not below it");
  const Tensor& x = call[0];
  const Tensor length = vector_norm(x, x.numel() == 0 ? 2 : p, dim, true);
  return x / clamp_min(length, eps);
}

Tensor cosine_similarity(const Tensor& a_in, const Tensor& b_in, std::int64_t dim, double eps) {
  const ComposedOp call(ops::cosine_similarity, a_in, b_in);
  const Tensor &a = call[0], &b = call[1];
  const int d = reduced_dim(dim, std::max(a.dim(), b.dim()));
  // Counted from the end a dimension is the same one of both. Where only one of them has it, or has
  // it whole, the other's elements are repeated along it.
  const std::int64_t from_end = d - std::max({a.dim(), b.dim(), 1});
  const auto extent = [&](const Tensor& x) {
    return x.dim() + from_end < 0 ? 1 : x.size(from_end);
  };
  const auto along = [&](const Tensor& x, const Tensor& other) {
    Shape shape = x.shape();
    while (shape.size() + from_end < 0) shape.insert(0, 1);
    if (shape[static_cast<int>(shape.size() + from_end)] == 1)
      shape[static_cast<int>(shape.size() + from_end)] = extent(other);
    return normalize(x.expand(shape), 2, from_end, eps);
  };
  return sum(along(a, b) * along(b, a), from_end);
}

Tensor argmax(const Tensor& x, std::int64_t dim, bool keepdim) {
  return arg_extreme(ops::argmax, x, dim, true, keepdim);
}
Tensor argmin(const Tensor& x, std::int64_t dim, bool keepdim) {
  return arg_extreme(ops::argmin, x, dim, false, keepdim);
}

Tensor argmax(const Tensor& x) { return argmax(x.reshape({-1}), 0); }
Tensor argmin(const Tensor& x) { return argmin(x.reshape({-1}), 0); }

Tensor max(const Tensor& a, const Tensor& b) { return maximum(a, b); }
Tensor min(const Tensor& a, const Tensor& b) { return minimum(a, b); }
Tensor max(const Tensor& x) { return extreme(ReduceOp::amax, ops::max, x, {}, false); }
Tensor min(const Tensor& x) { return extreme(ReduceOp::amin, ops::min, x, {}, false); }
std::pair<Tensor, Tensor> max(const Tensor& x, std::int64_t dim, bool keepdim) {
  return extreme_and_place(ops::max, x, dim, true, keepdim);
}
std::pair<Tensor, Tensor> min(const Tensor& x, std::int64_t dim, bool keepdim) {
  return extreme_and_place(ops::min, x, dim, false, keepdim);
}

Tensor any(const Tensor& x, const Dims& dims, bool keepdim) {
  const ComposedOp call(ops::any, x);
  return sum(x.detach().to(DType::boolean), dims, keepdim) > 0.0;
}
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) {
  const ComposedOp call(ops::all, x);
  return sum(logical_not(x.detach()), dims, keepdim) == 0.0;
}

namespace {

/// The running sum or product of each line, not recorded.
Tensor scan(ReduceOp op, const Tensor& x, int dim, bool reverse = false) {
  Tensor y = empty(x.shape(), x.options());
  backend_of(x).reduction.scan(
      {.op = op, .out = y.view(), .in = x.view(), .dim = dim, .reverse = reverse}, stream_of(x));
  return y;
}

/// Running products by ops that have gradients, without a division: the products of the 1, 2, 4 ...
/// elements that end at each.
Tensor running_products(const Tensor& x, int dim) {
  const std::int64_t length = x.shape()[dim];
  Tensor y = x.to(DType::f64);
  for (std::int64_t step = 1; step < length; step *= 2) {
    const Tensor before = y.narrow(dim, 0, length - step);
    y = cat({y.narrow(dim, 0, step), y.narrow(dim, step, length - step) * before}, dim);
  }
  return y.to(x.dtype());
}

/// Their gradient, not recorded, in f64: at j the product before it times s_j, where s_j = dy_j +
/// x_{j+1} s_{j+1}. The steps of that are joined two by two, then four by four ... Where no product
/// is 0 or infinite, it is the sum of what comes behind, by x_j.
Tensor running_products_gradient(const Tensor& x_in, const Tensor& dy, int dim) {
  const std::int64_t length = x_in.shape()[dim];
  const Tensor x = x_in.to(DType::f64);
  if (x.numel() == 0) return x;
  const Tensor y = scan(ReduceOp::prod, x, dim);
  const auto is_between = [](const Tensor& size) {
    return amin(size).item() > 0 && amax(size).item() <= std::numeric_limits<double>::max();
  };
  if (can_look_at(y) && is_between(abs(y)))
    return div(scan(ReduceOp::sum, mul(dy.to(DType::f64), y), dim, /*reverse=*/true), x);
  const auto first = [dim](const Tensor& of, std::int64_t n) { return of.narrow(dim, 0, n); };
  const auto last = [&](const Tensor& of, std::int64_t n) { return of.narrow(dim, length - n, n); };
  Tensor before = ones(x.shape(), x.options()), factor = zeros(x.shape(), x.options());
  Tensor s = dy.to(DType::f64).clone();
  last(before, length - 1).copy_(first(y, length - 1));
  first(factor, length - 1).copy_(last(x, length - 1));
  for (std::int64_t step = 1; step < length; step *= 2) {
    const std::int64_t n = length - step;
    first(s, n).add_(first(factor, n) * last(s, n));
    first(factor, n).copy_(first(factor, n) * last(factor, n));
  }
  return before * s;
}

}  // namespace

Tensor cumsum(const Tensor& x_in, std::int64_t dim) {
  if (x_in.dim() == 0)
    return of_one_element(x_in, [&](const Tensor& line) { return cumsum(line, dim); });
  const OpCall call(ops::cumsum, x_in);
  const Tensor x = no_grad([&] { return call[0].to(sum_dtype(call[0].dtype())); });
  const int d = wrap_dim(dim, x.dim());
  Tensor y = scan(ReduceOp::sum, x, d);
  if (!call.recording()) return y;
  return call.record(y, Differentiable{[d](const Tensor& dy, InputGradients& inputs) {
                       const auto backwards = [d](const Tensor& gradient) {
                         return scan(ReduceOp::sum, gradient, d, /*reverse=*/true);
                       };
                       inputs.set(0, adjoint(inputs, ops::cumsum.name, dy, backwards,
                                             [d](const Tensor& ddx) { return cumsum(ddx, d); }));
                     }});
}

Tensor cumprod(const Tensor& x_in, std::int64_t dim) {
  if (x_in.dim() == 0)
    return of_one_element(x_in, [&](const Tensor& line) { return cumprod(line, dim); });
  const OpCall call(ops::cumprod, x_in);
  const Tensor x = no_grad([&] { return call[0].to(sum_dtype(call[0].dtype())); });
  const int d = wrap_dim(dim, x.dim());
  Tensor y = scan(ReduceOp::prod, x, d);
  if (!call.recording()) return y;
  return call.record(
      y, Differentiable{[d, x = SavedTensor(x)](const Tensor& dy, InputGradients& inputs) {
        if (inputs.creates_graph())
          return set_composed(inputs, dy, {inputs.operand(0, x)}, [d](std::span<const Tensor> in) {
            return running_products(in[0], d);
          });
        inputs.set(0, running_products_gradient(x.get(), dy, d).to(dy.dtype()));
      }});
}

}  // namespace lockstep
