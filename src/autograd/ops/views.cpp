#include <algorithm>
#include <optional>

#include "autograd/ops/common.hpp"
#include "autograd/ops/recorded.hpp"

namespace lockstep {

LOCKSTEP_OP(diagonal, any, follow, same)
LOCKSTEP_OP(expand, any, follow, same)
LOCKSTEP_OP(permute, any, follow, same)
LOCKSTEP_OP(reshape, any, follow, same)
LOCKSTEP_OP(slice, any, follow, same)

namespace {

using namespace autograd;

/// A window on x, recorded with the function of (gradient, InputGradients) that maps it back, by
/// recorded ops or as an adjoint.
template <class Backward>
Tensor view_op(const OpDescriptor& op, const Tensor& x, void* data, const Shape& shape,
               const Strides& strides, Backward backward) {
  const OpCall call(op, x);
  Tensor y = make_view(x, data, shape, strides);
  if (!call.recording()) return y;
  return call.record(std::move(y), Differentiable{[backward = std::move(backward)](
                                                      const Tensor& dy, InputGradients& inputs) {
                       inputs.set(0, backward(dy, inputs));
                     }});
}

/// The gradient of operand 0 where the result is its window: 0 around it.
template <class Window>
Tensor framed(const InputGradients& inputs, std::string_view op, const Tensor& dy, Window window) {
  const auto frame = [&](const Tensor& gradient) {
    Tensor dx = zeros(inputs.operand_shape(0), gradient.options());
    window(dx).copy_(gradient);
    return dx;
  };
  return adjoint(inputs, op, dy, frame, window);
}

void* offset_by(const Tensor& x, std::int64_t elements) {
  return static_cast<std::byte*>(x.data_ptr()) +
         elements * static_cast<std::int64_t>(size_of(x.dtype()));
}

/// Replaces an extent of -1 by what the number of elements leaves.
Shape infer_extent(std::string_view op, Shape shape, std::int64_t elements) {
  const Shape asked = shape;
  std::int64_t known = 1;
  int unknown = -1;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] != -1) {
      LOCKSTEP_CHECK(shape[i] >= 0, InvalidArgument, op, ": negative extent ", shape[i], " in ",
                     asked, "; only -1 stands for what the number of elements leaves");
      known *= shape[i];
      continue;
    }
    LOCKSTEP_CHECK(unknown < 0, InvalidArgument, op, ": more than one -1 in ", asked);
    unknown = i;
  }
  if (unknown >= 0) {
    LOCKSTEP_CHECK(known > 0, InvalidArgument, op, ": -1 in ", asked,
                   " could be anything beside an extent of 0");
    shape[unknown] = elements / known;
  }
  LOCKSTEP_CHECK(numel(shape) == elements, InvalidArgument, op, ": ", elements,
                 " elements do not fill shape ", asked);
  return shape;
}

/// Strides under which the same memory has another shape, where there are such.
std::optional<Strides> view_strides(const Shape& with_ones, const Strides& strides_with_ones,
                                    const Shape& to) {
  Shape from;
  Strides strides;
  for (int i = 0; i < with_ones.size(); ++i) {
    if (with_ones[i] == 1) continue;
    from.push_back(with_ones[i]);
    strides.push_back(strides_with_ones[i]);
  }
  Strides result = Dims::filled(to.size(), 0);
  int t = to.size() - 1;
  std::int64_t step = 1, group = 1;
  for (int f = from.size() - 1; f >= 0; --f) {
    if (group == 1) step = strides[f];
    group *= from[f];
    const bool joins_next = f > 0 && strides[f - 1] == from[f] * strides[f];
    if (joins_next) continue;
    while (t >= 0 && (group > 1 || to[t] == 1)) {
      if (group % to[t] != 0) return std::nullopt;
      result[t] = step;
      step *= to[t];
      group /= to[t];
      --t;
    }
    if (group != 1) return std::nullopt;
  }
  for (; t >= 0; --t) result[t] = step;
  return result;
}

/// The same memory in another shape of as many elements; undefined where strides do not allow it.
Tensor reshaped_view(const Tensor& x, const Shape& target) {
  const auto strides =
      x.is_contiguous() ? contiguous_strides(target) : view_strides(x.shape(), x.strides(), target);
  if (!strides) return {};
  return view_op(ops::reshape, x, x.data_ptr(), target, *strides,
                 [](const Tensor& dy, const InputGradients& inputs) {
                   return dy.reshape(inputs.operand_shape(0));
                 });
}

/// A view that changes nothing: of what gradients flow through a tensor of its own, as with other
/// shapes, so that hooks, gradients and NoGradGuard do alike whatever the extents.
Tensor same_view(const Tensor& x) {
  if (!x.requires_grad()) return x;
  return view_op(ops::reshape, x, x.data_ptr(), x.shape(), x.strides(),
                 [](const Tensor& dy, const InputGradients&) { return dy; });
}

}  // namespace

Tensor Tensor::reshape(Shape wanted) const {
  const Shape target = infer_extent(ops::reshape.name, wanted, numel());
  if (target == shape()) return same_view(*this);
  if (Tensor seen = reshaped_view(*this, target); seen.defined()) return seen;
  return contiguous().reshape(target);
}

Tensor Tensor::view(Shape wanted) const {
  const Shape target = infer_extent("view", wanted, numel());
  if (target == shape()) return same_view(*this);
  Tensor seen = reshaped_view(*this, target);
  LOCKSTEP_CHECK(seen.defined(), InvalidArgument, "view: memory of shape ", shape(),
                 " and strides ", strides(), " has no view of shape ", target,
                 "; reshape() copies where it must");
  return seen;
}

Tensor Tensor::flatten(std::int64_t start, std::int64_t end) const {
  if (dim() == 0) return reshape({1});
  const int first = wrap_dim(start, dim()), last = wrap_dim(end, dim());
  LOCKSTEP_CHECK(first <= last, InvalidArgument, "flatten: start ", start, " is after end ", end);
  Shape target;
  std::int64_t joined = 1;
  for (int i = 0; i < dim(); ++i) {
    if (i < first || i > last)
      target.push_back(shape()[i]);
    else
      joined *= shape()[i];
    if (i == last) target.push_back(joined);
  }
  return reshape(target);
}

Tensor Tensor::permute(const Dims& order) const {
  LOCKSTEP_CHECK(order.size() == dim(), InvalidArgument, ops::permute.name, ": order ", order,
                 " must name each of ", dim(), " dimensions");
  Shape new_shape = shape();
  Strides new_strides = strides();
  Dims inverse = Dims::filled(dim(), -1);
  for (int i = 0; i < dim(); ++i) {
    const int from = wrap_dim(order[i], dim());
    LOCKSTEP_CHECK(inverse[from] < 0, InvalidArgument, ops::permute.name, ": dimension ", from,
                   " appears twice in ", order);
    inverse[from] = i;
    new_shape[i] = shape()[from];
    new_strides[i] = strides()[from];
  }
  return view_op(
      ops::permute, *this, data_ptr(), new_shape, new_strides,
      [inverse](const Tensor& dy, const InputGradients&) { return dy.permute(inverse); });
}

Tensor Tensor::transpose(std::int64_t dim0, std::int64_t dim1) const {
  Dims order;
  for (int i = 0; i < dim(); ++i) order.push_back(i);
  std::swap(order[wrap_dim(dim0, dim())], order[wrap_dim(dim1, dim())]);
  return permute(order);
}

Tensor Tensor::slice(std::int64_t dim, std::int64_t start, std::int64_t end,
                     std::int64_t step) const {
  const int d = wrap_dim(dim, this->dim());
  LOCKSTEP_CHECK(step > 0, InvalidArgument, ops::slice.name, ": the step must be positive, got ",
                 step);
  const std::int64_t extent = shape()[d];
  const auto clip = [extent](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + extent : at, 0, extent);
  };
  const std::int64_t first = clip(start), last = std::max(first, clip(end));
  Shape new_shape = shape();
  Strides new_strides = strides();
  new_shape[d] = last > first ? (last - first - 1) / step + 1 : 0;
  // A single element has no neighbour, and a huge step no stride.
  if (new_shape[d] > 1) new_strides[d] *= step;
  return view_op(ops::slice, *this, offset_by(*this, first * strides()[d]), new_shape, new_strides,
                 [d, first, last, step](const Tensor& dy, const InputGradients& inputs) {
                   if (dy.shape() == inputs.operand_shape(0)) return dy;  // the slice is all of it
                   const auto window = [=](const Tensor& x) {
                     return x.slice(d, first, last, step);
                   };
                   return framed(inputs, ops::slice.name, dy, window);
                 });
}

Tensor Tensor::select(std::int64_t dim, std::int64_t index) const {
  const int d = wrap_dim(dim, this->dim());
  const std::int64_t extent = shape()[d];
  LOCKSTEP_CHECK(index >= -extent && index < extent, InvalidArgument, "select: index ", index,
                 " is outside [", -extent, ", ", extent, ") of dimension ", d, " of shape ",
                 shape());
  const std::int64_t at = index < 0 ? index + extent : index;
  Shape without = shape();
  without.erase(d);
  return slice(d, at, at + 1).reshape(without);
}

Tensor Tensor::narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const {
  const std::int64_t extent = size(dim), first = start < 0 ? start + extent : start;
  LOCKSTEP_CHECK(first >= 0 && length >= 0 && first <= extent - length, InvalidArgument,
                 "narrow: ", length, " elements from ", start, " on are not within dimension ", dim,
                 " of shape ", shape());
  return slice(dim, first, first + length);
}

Tensor Tensor::diagonal(std::int64_t offset, std::int64_t dim1, std::int64_t dim2) const {
  const int d1 = wrap_dim(dim1, dim()), d2 = wrap_dim(dim2, dim());
  LOCKSTEP_CHECK(d1 != d2, InvalidArgument, ops::diagonal.name, ": dimension ", d1, " of shape ",
                 shape(), " is named twice");
  const std::int64_t first1 = std::max<std::int64_t>(-offset, 0);
  const std::int64_t first2 = std::max<std::int64_t>(offset, 0);
  const std::int64_t length =
      std::max<std::int64_t>(0, std::min(shape()[d1] - first1, shape()[d2] - first2));
  Shape kept = shape();
  Strides kept_strides = strides();
  for (const int d : {std::max(d1, d2), std::min(d1, d2)}) {
    kept.erase(d);
    kept_strides.erase(d);
  }
  kept.push_back(length);
  kept_strides.push_back(strides()[d1] + strides()[d2]);
  const std::int64_t start = length == 0 ? 0 : first1 * strides()[d1] + first2 * strides()[d2];
  return view_op(ops::diagonal, *this, offset_by(*this, start), kept, kept_strides,
                 [offset, d1, d2](const Tensor& dy, const InputGradients& inputs) {
                   const auto window = [=](const Tensor& x) { return x.diagonal(offset, d1, d2); };
                   return framed(inputs, ops::diagonal.name, dy, window);
                 });
}

Tensor Tensor::expand(Shape wanted) const {
  const int lead = wanted.size() - dim();
  for (int i = 0; i < wanted.size(); ++i)
    if (wanted[i] == -1 && i >= lead) wanted[i] = shape()[i - lead];
  if (wanted == shape()) return same_view(*this);
  const Strides repeated = broadcast_strides(shape(), strides(), wanted);
  return view_op(ops::expand, *this, data_ptr(), wanted, repeated,
                 [](const Tensor& dy, const InputGradients& inputs) {
                   return sum_to(dy, inputs.operand_shape(0));
                 });
}

Tensor Tensor::unsqueeze(std::int64_t dim) const {
  Shape with = shape();
  with.insert(wrap_dim(dim, this->dim() + 1), 1);
  return reshape(with);
}

Tensor Tensor::squeeze(std::int64_t dim) const {
  const int d = wrap_dim(dim, this->dim());
  if (shape()[d] != 1) return same_view(*this);
  Shape without = shape();
  without.erase(d);
  return reshape(without);
}

Tensor Tensor::squeeze() const {
  Shape without;
  for (const std::int64_t extent : shape())
    if (extent != 1) without.push_back(extent);
  return reshape(without);
}

Tensor Tensor::t() const {
  LOCKSTEP_CHECK(dim() <= 2, InvalidArgument, "t: a tensor of shape ", shape(),
                 " is no matrix; use transpose() or permute()");
  return dim() < 2 ? same_view(*this) : transpose(0, 1);
}

}  // namespace lockstep
