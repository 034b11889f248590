#include "lockstep/autograd/ops/indexing.hpp"

#include <algorithm>
#include <vector>

#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/autograd/ops/sort.hpp"

namespace lockstep {

LOCKSTEP_OP(bincount, any, follow, same)
LOCKSTEP_OP(index_add, numeric, widest, same)
LOCKSTEP_OP(masked_fill, any, widest, same)
LOCKSTEP_OP(masked_select, any, follow, same)
LOCKSTEP_OP(nonzero, any, follow, same)
LOCKSTEP_OP(one_hot, any, follow, same)
LOCKSTEP_OP(scatter, any, follow, same)
LOCKSTEP_OP(scatter_add, numeric, widest, same)

namespace {

using namespace autograd;

/// The first elements along each dimension, not recorded.
Tensor corner(Tensor x, const Shape& shape) {
  const NoGradGuard no_recording;
  for (int d = 0; d < shape.size(); ++d) x = x.narrow(d, 0, shape[d]);
  return x;
}

/// The dtype in which what meets at one element is added: 16 bits would lose most of many terms.
DType scatter_dtype(DType dtype) { return is_floating(dtype) ? statistics_dtype(dtype) : dtype; }

void check_mask(std::string_view op, const Tensor& x, const Tensor& mask) {
  check_same_device(op, x, mask);
  LOCKSTEP_CHECK(mask.dtype() == DType::boolean, InvalidArgument, op, ": the mask has dtype ",
                 mask.dtype(), ", it must be bool");
}

/// The row-major positions (i64) of the elements of a contiguous x that are not 0.
Tensor flat_nonzero(const Tensor& x) {
  const Tensor truth = x.detach().to(DType::boolean).reshape({-1});
  const auto count = sum(truth).item<std::int64_t>();
  return argsort(truth, 0, true).narrow(0, 0, count);  // equal elements keep their order
}

/// Of what a source gives a tensor where an index says. @return the dimension.
/// @throws InvalidArgument for shapes that do not fit.
int check_scattered(std::string_view op, const Tensor& x, std::int64_t dim, const Tensor& index,
                    const Tensor& source) {
  check_index(op, x, index);
  const int d = wrap_dim(dim, x.dim());
  LOCKSTEP_CHECK(index.dim() == x.dim(), InvalidArgument, op, ": an index of shape ", index.shape(),
                 " for a tensor of shape ", x.shape(), "; it must have as many dimensions");
  bool fits = source.dim() == x.dim();
  for (int i = 0; fits && i < x.dim(); ++i)
    fits = index.shape()[i] <= source.shape()[i] && (i == d || index.shape()[i] <= x.shape()[i]);
  LOCKSTEP_CHECK(fits, InvalidArgument, op, ": an index of shape ", index.shape(),
                 " does not fit a source of ", source.shape(), " and a tensor of ", x.shape(),
                 " along dimension ", d);
  return d;
}

/// The gradient of such a source: 0 beyond the index.
Tensor gathered_gradient(const Tensor& dy, int dim, const Tensor& index, const Shape& shape) {
  const Tensor read = gather(dy, dim, index);
  if (read.shape() == shape) return read;
  std::vector<std::int64_t> behind;
  for (int d = shape.size() - 1; d >= 0; --d) {
    behind.push_back(0);
    behind.push_back(shape[d] - read.size(d));
  }
  return pad(read, behind, 0);
}

/// x with what a source has added where an index says, for an op of that or another name.
Tensor add_at_indices(const OpDescriptor& op, const Tensor& x_in, std::int64_t dim,
                      const Tensor& index, const Tensor& source_in) {
  const OpCall call(op, x_in, source_in);
  const Tensor &x = call[0], &source = call[1];
  const int d = check_scattered(call.name(), x, dim, index, source);
  const NoGradGuard no_recording;
  const DType wide = scatter_dtype(x.dtype());
  const Tensor sums = wide == x.dtype() ? x.clone() : x.to(wide).contiguous();
  const Tensor terms = corner(source, index.shape()).to(wide);
  backend_of(x).index.scatter_add(
      {.out = sums.view(), .in = terms.view(), .index = index.view(), .dim = d, .op = call.name()},
      stream_of(x));
  Tensor y = sums.to(x.dtype());
  if (!call.recording()) return y;
  const auto backward = [d, index = SavedTensor(index)](const Tensor& dy, InputGradients& inputs) {
    inputs.set(0, dy);
    if (inputs.wanted(1))
      inputs.set(1, gathered_gradient(dy, d, index.get(), inputs.operand_shape(1)));
  };
  return call.record(y, Differentiable{backward});
}

}  // namespace

Tensor scatter_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source) {
  return add_at_indices(ops::scatter_add, x, dim, index, source);
}

Tensor index_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source,
                 double alpha) {
  const ComposedOp call(ops::index_add, x, source);
  check_index(call.name(), x, index);
  const int d = wrap_dim(dim, x.dim());
  Shape wanted = x.shape(), along = Dims::filled(x.dim(), 1);
  wanted[d] = along[d] = index.numel();
  LOCKSTEP_CHECK(index.dim() == 1 && source.shape() == wanted, InvalidArgument, call.name(),
                 ": an index of shape ", index.shape(), " into ", x.shape(), " along dimension ", d,
                 " needs one dimension and a source of shape ", wanted, ", got ", source.shape());
  return add_at_indices(ops::index_add, call[0], d, index.reshape(along).expand(wanted),
                        alpha == 1.0 ? call[1] : mul(call[1], alpha));
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  const ComposedOp call(ops::masked_fill, x);
  check_mask(call.name(), x, mask);
  check_holds(call.name(), x.dtype(), value);
  return where(mask, scalar(value, x.options()), x);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  const ComposedOp call(ops::masked_fill, x, value);
  check_mask(call.name(), x, mask);
  LOCKSTEP_CHECK(value.dim() == 0, InvalidArgument, call.name(), ": the value has shape ",
                 value.shape(), ", it must have no dimensions");
  return where(mask, call[1], call[0]);
}

Tensor scatter(const Tensor& x, std::int64_t dim, const Tensor& index, Scalar value) {
  check_holds(ops::scatter.name, x.dtype(), value);
  return scatter(x, dim, index, scalar(value, x.options()).expand(index.shape()));
}

Tensor scatter(const Tensor& x_in, std::int64_t dim, const Tensor& index, const Tensor& source_in) {
  const OpCall call(ops::scatter, x_in, source_in);
  const Tensor &x = call[0], &source = call[1];
  const int d = check_scattered(call.name(), x, dim, index, source);
  const NoGradGuard no_recording;
  Tensor y = x.clone();
  const Tensor values = corner(source, index.shape());
  backend_of(x).index.scatter(
      {.out = y.view(), .in = values.view(), .index = index.view(), .dim = d}, stream_of(x));
  if (!call.recording()) return y;
  const auto backward = [d, index = SavedTensor(index)](const Tensor& dy, InputGradients& inputs) {
    if (inputs.wanted(0)) inputs.set(0, scatter(dy, d, index.get(), 0));
    if (inputs.wanted(1))
      inputs.set(1, gathered_gradient(dy, d, index.get(), inputs.operand_shape(1)));
  };
  return call.record(y, Differentiable{backward});
}

Tensor nonzero(const Tensor& x) {
  const ComposedOp call(ops::nonzero, x);
  Tensor rest = flat_nonzero(x);
  std::vector<Tensor> columns(static_cast<std::size_t>(x.dim()));
  for (int d = x.dim() - 1; d > 0; --d) {
    const Tensor extent = scalar(x.shape()[d], rest.options());
    const Tensor rows = div(rest, extent, RoundingMode::trunc);
    columns[static_cast<std::size_t>(d)] = rest - rows * extent;
    rest = rows;
  }
  if (columns.empty()) return empty({rest.numel(), 0}, rest.options());
  columns[0] = rest;
  return stack(columns, 1);
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  const ComposedOp call(ops::masked_select, x);
  check_mask(call.name(), x, mask);
  const Shape shape = broadcast_shapes(x.shape(), mask.shape(), call.name());
  return index_select(x.expand(shape).reshape({-1}), 0, flat_nonzero(mask.expand(shape)));
}

Tensor bincount(const Tensor& x, std::int64_t min_length) {
  const ComposedOp call(ops::bincount, x);
  LOCKSTEP_CHECK(x.dtype() == DType::i64 && x.dim() == 1 && min_length >= 0, InvalidArgument,
                 call.name(), ": ", x.dtype(), " of shape ", x.shape(), ", at least ", min_length,
                 " places; it counts i64 of one dimension in 0 or more places");
  const std::int64_t last = x.numel() > 0 ? max(x).item<std::int64_t>() : -1;
  const Tensor places = zeros({std::max(min_length, last + 1)}, x.options());
  return add_at_indices(ops::bincount, places, 0, x, ones({1}, x.options()).expand(x.shape()));
}

Tensor one_hot(const Tensor& index, std::int64_t num_classes) {
  const ComposedOp call(ops::one_hot, index);
  LOCKSTEP_CHECK(index.dtype() == DType::i64, InvalidArgument, call.name(),
                 ": the index has dtype ", index.dtype(), ", it must be i64");
  const bool some = index.numel() > 0;
  LOCKSTEP_CHECK(num_classes >= (some ? -1 : 0), InvalidArgument, call.name(), ": ", num_classes,
                 " classes for an index of shape ", index.shape(),
                 "; give their number, or -1 where there is an index to find it by");
  if (num_classes < 0) num_classes = max(index).item<std::int64_t>() + 1;
  if (some && can_look_at(index)) {
    const auto smallest = min(index).item<std::int64_t>(),
               largest = max(index).item<std::int64_t>();
    LOCKSTEP_CHECK(smallest >= 0 && largest < num_classes, InvalidArgument, call.name(),
                   ": indices from ", smallest, " to ", largest, " are not all in [0, ",
                   num_classes, ")");
    const NoGradGuard no_recording;
    const Tensor place = index.unsqueeze(-1), one = ones({}, index.options()).expand(place.shape());
    Shape shape = index.shape();
    shape.push_back(num_classes);
    const Tensor y = zeros(shape, index.options());
    backend_of(y).index.scatter(
        {.out = y.view(), .in = one.view(), .index = place.view(), .dim = index.dim()},
        stream_of(y));
    return y;
  }
  const Tensor classes = arange(num_classes, index.options());
  return eq(index.unsqueeze(-1), classes).to(DType::i64);
}

}  // namespace lockstep
