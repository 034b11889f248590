#include "lockstep/autograd/ops/shape.hpp"

#include <algorithm>

#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "autograd/ops/recorded.hpp"
#include "autograd/ops/reversed.hpp"

namespace lockstep {

LOCKSTEP_OP(cat, any, widest, same)
LOCKSTEP_OP(flip, any, follow, same)
LOCKSTEP_OP(gather, any, follow, same)
LOCKSTEP_OP(index_select, any, follow, same)
LOCKSTEP_OP(meshgrid, any, follow, own)
LOCKSTEP_OP(repeat, any, follow, same)
LOCKSTEP_OP(roll, any, follow, same)
LOCKSTEP_OP(split, any, follow, same)
LOCKSTEP_OP(stack, any, widest, same)
LOCKSTEP_OP(tril, any, follow, same)
LOCKSTEP_OP(triu, any, follow, same)

namespace {

using namespace autograd;

Tensor triangle(const OpDescriptor& op, const Tensor& x, bool upper, std::int64_t diagonal) {
  const OpCall call(op, x);
  LOCKSTEP_CHECK(x.dim() >= 2, InvalidArgument, op.name,
                 ": needs at least two dimensions, got shape ", x.shape());
  Tensor y = empty(x.shape(), x.options());
  backend_of(x).elementwise.triangle(
      {.out = y.view(), .in = x.view(), .upper = upper, .diagonal = diagonal}, stream_of(x));
  if (!call.recording()) return y;
  return call.record(
      y, Differentiable{[&op, upper, diagonal](const Tensor& dy, InputGradients& inputs) {
        inputs.set(0, triangle(op, dy, upper, diagonal));
      }});
}

/// out[..i..] = x[..index[..i..]..] along dimension d, in the name of an op.
Tensor gathered(const OpDescriptor& op, const Tensor& x, int d, const Tensor& index) {
  const OpCall call(op, x);
  Tensor y = empty(index.shape(), x.options());
  backend_of(x).index.gather({.out = y.view(), .in = x.view(), .index = index.view(), .dim = d},
                             stream_of(x));
  if (!call.recording()) return y;
  const auto backward = [&op, d, at = SavedTensor(index)](const Tensor& dy,
                                                          InputGradients& inputs) {
    const auto scattered = [&](const Tensor& gradient) {
      // Each addition is rounded: 16 bits would lose most of what meets at one element.
      const Tensor terms = gradient.to(statistics_dtype(gradient.dtype()));
      const Tensor dx = zeros(inputs.operand_shape(0), terms.options());
      backend_of(dx).index.scatter_add(
          {.out = dx.view(), .in = terms.view(), .index = at.get().view(), .dim = d},
          stream_of(dx));
      return dx;
    };
    inputs.set(0, adjoint(inputs, op.name, dy, scattered, [&op, d, at](const Tensor& ddx) {
                 return gathered(op, ddx, d, at.get());
               }));
  };
  return call.record(y, Differentiable{backward});
}

}  // namespace

Tensor cat(std::span<const Tensor> tensors, std::int64_t dim) {
  const OpListCall call(ops::cat, tensors);
  const int d = wrap_dim(dim, tensors[0].dim());
  Shape shape = tensors[0].shape();
  shape[d] = 0;
  for (const Tensor& part : tensors) {
    Shape rest = part.shape();
    LOCKSTEP_CHECK(rest.size() == shape.size(), InvalidArgument, call.name(), ": shapes ",
                   tensors[0].shape(), " and ", part.shape(), " differ in rank");
    const std::int64_t total = shape[d] + rest[d];
    rest[d] = shape[d];
    LOCKSTEP_CHECK(rest == shape, InvalidArgument, "cat along dimension ", d, ": shapes ",
                   tensors[0].shape(), " and ", part.shape(), " differ elsewhere");
    shape[d] = total;
  }
  Tensor out = empty(shape, call[0].options());
  std::vector<std::int64_t> sizes;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < call.size(); ++i) {
    const Tensor& part = call[i];
    const std::int64_t extent = part.shape()[d];
    const Tensor window = out.slice(d, at, at + extent);
    backend_of(out).elementwise.copy({.out = window.view(), .in = part.view()}, stream_of(out));
    sizes.push_back(extent);
    at += extent;
  }
  if (!call.recording()) return out;
  const auto backward = [d, sizes = std::move(sizes)](const Tensor& dy, InputGradients& inputs) {
    std::int64_t start = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (inputs.wanted(i)) inputs.set(i, dy.slice(d, start, start + sizes[i]));
      start += sizes[i];
    }
  };
  return call.record(out, Differentiable{backward});
}

Tensor stack(std::span<const Tensor> tensors, std::int64_t dim) {
  const ComposedOp call(ops::stack);
  LOCKSTEP_CHECK(!tensors.empty(), InvalidArgument, call.name(), ": the list of tensors is empty");
  const int d = wrap_dim(dim, tensors[0].dim() + 1);
  std::vector<Tensor> rows;
  rows.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    LOCKSTEP_CHECK(tensor.shape() == tensors[0].shape(), InvalidArgument, call.name(), ": shapes ",
                   tensors[0].shape(), " and ", tensor.shape(), " differ");
    rows.push_back(tensor.unsqueeze(d));
  }
  return cat(rows, d);
}

namespace {

/// The array that the parts are side by side in, if they are, and fill it: of attention's gradients
/// of queries, keys and values from one product.
Tensor joined_in_place(std::span<const Tensor> parts, int dim, const Shape& shape) {
  const Strides strides = contiguous_strides(shape);
  std::int64_t at = 0;
  for (const Tensor& part : parts) {
    const Tensor& first = parts[0];
    if (!part.defined() || part.strides() != strides || part.dtype() != first.dtype() ||
        part.impl().storage != first.impl().storage ||
        part.data_ptr() != static_cast<std::byte*>(first.data_ptr()) +
                               at * static_cast<std::int64_t>(size_of(first.dtype())))
      return {};
    at += part.size(dim) * strides[dim];
  }
  return make_view(parts[0], parts[0].data_ptr(), shape, strides);
}

/// Gradients of parts side by side, recorded; 0 for those that none came for.
Tensor joined(std::span<const Tensor> parts, const std::vector<std::int64_t>& sizes, int dim,
              const Shape& shape) {
  const TensorOptions options = std::ranges::find_if(parts, &Tensor::defined)->options();
  std::vector<Tensor> all(parts.begin(), parts.end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].defined()) continue;
    Shape own = shape;
    own[dim] = sizes[i];
    all[i] = zeros(own, options);
  }
  return cat(all, dim);
}

}  // namespace

std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes, std::int64_t dim) {
  const OpCall call(ops::split, x);
  const int d = wrap_dim(dim, x.dim());
  std::vector<Tensor> parts;
  parts.reserve(sizes.size());
  std::int64_t at = 0;
  {
    const NoGradGuard no_recording;
    for (const auto size : sizes) {
      LOCKSTEP_CHECK(size >= 0, InvalidArgument, call.name(), ": negative size ", size);
      parts.push_back(x.slice(d, at, at + size));
      at += size;
    }
  }
  LOCKSTEP_CHECK(at == x.shape()[d], InvalidArgument, call.name(), ": the sizes add up to ", at,
                 ", the dimension has extent ", x.shape()[d]);
  if (!call.recording()) return parts;
  const auto backward = [d, sizes = std::vector(sizes.begin(), sizes.end())](
                            std::span<const Tensor> dys, InputGradients& inputs) {
    const Shape shape = inputs.operand_shape(0);
    if (inputs.creates_graph()) return inputs.set(0, joined(dys, sizes, d, shape));
    if (const Tensor whole = joined_in_place(dys, d, shape); whole.defined())
      return inputs.set(0, whole);
    const auto defined = std::ranges::find_if(dys, &Tensor::defined);
    Tensor dx = empty(shape, defined->options());
    std::int64_t start = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      Tensor window = dx.slice(d, start, start + sizes[i]);
      if (dys[i].defined())
        window.copy_(dys[i]);
      else
        window.zero_();
      start += sizes[i];
    }
    inputs.set(0, std::move(dx));
  };
  call.record_outputs(parts, Differentiable{backward});
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim) {
  LOCKSTEP_CHECK(chunks > 0, InvalidArgument, "chunk: needs at least one chunk, got ", chunks);
  const std::int64_t extent = x.size(dim);
  if (extent == 0) return split(x, std::vector<std::int64_t>(chunks, 0), dim);
  return split(x, (extent + chunks - 1) / chunks, dim);
}

std::vector<Tensor> split(const Tensor& x, std::int64_t size, std::int64_t dim) {
  LOCKSTEP_CHECK(size > 0, InvalidArgument, ops::split.name, ": parts of extent ", size,
                 "; it must be above 0");
  const std::int64_t extent = x.size(dim);
  std::vector<std::int64_t> sizes;
  if (extent == 0) sizes.push_back(0);
  for (std::int64_t at = 0; at < extent; at += size) sizes.push_back(std::min(size, extent - at));
  return split(x, sizes, dim);
}

std::vector<Tensor> meshgrid(std::span<const Tensor> axes, std::string_view indexing) {
  const ComposedOp call(ops::meshgrid);
  LOCKSTEP_CHECK(indexing == "ij" || indexing == "xy", InvalidArgument, call.name(),
                 ": indexing is \"", indexing, "\"; it is \"ij\" or \"xy\"");
  LOCKSTEP_CHECK(!axes.empty(), InvalidArgument, call.name(), ": the list of axes is empty");
  const bool swaps = indexing == "xy" && axes.size() > 1;
  const auto place = [&](std::size_t i) { return static_cast<int>(swaps && i < 2 ? 1 - i : i); };
  Shape shape = Dims::filled(static_cast<int>(axes.size()), 1);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    LOCKSTEP_CHECK(axes[i].defined(), InvalidArgument, call.name(), ": axis ", i, " is undefined");
    LOCKSTEP_CHECK(axes[i].dim() <= 1, InvalidArgument, call.name(), ": axis ", i, " has shape ",
                   axes[i].shape(), "; each has one dimension");
    shape[place(i)] = axes[i].numel();
  }
  std::vector<Tensor> grid;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Shape along = Dims::filled(shape.size(), 1);
    along[place(i)] = axes[i].numel();
    grid.push_back(axes[i].reshape(along).expand(shape));
  }
  return grid;
}

std::vector<Tensor> unbind(const Tensor& x, std::int64_t dim) {
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.size(dim)), 1);
  std::vector<Tensor> parts = split(x, sizes, dim);
  for (Tensor& part : parts) part = part.squeeze(dim);
  return parts;
}

Tensor repeat(const Tensor& x, const Dims& times) {
  const ComposedOp call(ops::repeat, x);
  LOCKSTEP_CHECK(times.size() >= x.dim(), InvalidArgument, call.name(), ": ", times, " for shape ",
                 x.shape(), "; it needs a number for each dimension");
  LOCKSTEP_CHECK(std::ranges::all_of(times, [](std::int64_t each) { return each >= 0; }),
                 InvalidArgument, call.name(), ": ", times, " has a negative number");
  Shape shape = Dims::filled(times.size() - x.dim(), 1);
  for (const auto extent : x.shape()) shape.push_back(extent);
  const auto repeated = std::ranges::count_if(times, [](std::int64_t each) { return each != 1; });
  if (times.size() + repeated <= max_rank) {
    Shape apart, all;  // with a dimension of its own before each that is repeated
    for (int d = 0; d < times.size(); ++d) {
      if (times[d] != 1) apart.push_back(1), all.push_back(times[d]);
      apart.push_back(shape[d]);
      all.push_back(shape[d]);
      shape[d] *= times[d];
    }
    return x.reshape(apart).expand(all).clone().reshape(shape);
  }
  Tensor y = x.reshape(shape);
  for (int d = 0; d < times.size(); ++d)
    y = times[d] == 0 ? y.narrow(d, 0, 0)
                      : cat(std::vector(static_cast<std::size_t>(times[d]), y), d);
  return y;
}

Tensor expand_as(const Tensor& x, const Tensor& other) { return x.expand(other.shape()); }

Tensor flip(const Tensor& x, const Dims& dims) {
  const OpCall call(ops::flip, x);
  Dims wrapped, seen = Dims::filled(x.dim(), 0);
  for (const auto dim : dims) {
    wrapped.push_back(wrap_dim(dim, x.dim()));
    LOCKSTEP_CHECK(seen[static_cast<int>(wrapped.back())]++ == 0, InvalidArgument, call.name(),
                   ": dimensions ", dims, " of shape ", x.shape(), " name one twice");
  }
  Tensor y = empty(x.shape(), x.options());
  if (x.numel() > 0)
    backend_of(x).elementwise.copy({.out = y.view(), .in = reversed(x.view(), wrapped)},
                                   stream_of(x));
  if (!call.recording()) return y;
  return call.record(y, Differentiable{[wrapped](const Tensor& dy, InputGradients& inputs) {
                       inputs.set(0, flip(dy, wrapped));
                     }});
}

Tensor roll(const Tensor& x, std::int64_t shift, std::int64_t dim) {
  const ComposedOp call(ops::roll, x);
  const std::int64_t extent = x.size(dim);
  if (extent == 0) return x.clone();
  const std::int64_t cut = extent - ((shift % extent) + extent) % extent;
  return cat(std::vector{x.slice(dim, cut, extent), x.slice(dim, 0, cut)}, dim);
}

Tensor tril(const Tensor& x, std::int64_t diagonal) {
  return triangle(ops::tril, x, false, diagonal);
}
Tensor triu(const Tensor& x, std::int64_t diagonal) {
  return triangle(ops::triu, x, true, diagonal);
}

Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index) {
  check_index(ops::gather.name, x, index);
  const int d = wrap_dim(dim, x.dim());
  LOCKSTEP_CHECK(index.dim() == x.dim(), InvalidArgument, ops::gather.name,
                 ": the index has shape ", index.shape(), ", it needs ", x.dim(),
                 " dimensions like ", x.shape());
  for (int i = 0; i < x.dim(); ++i)
    LOCKSTEP_CHECK(i == d || index.shape()[i] <= x.shape()[i], InvalidArgument, ops::gather.name,
                   ": the index of shape ", index.shape(), " exceeds ", x.shape());
  return gathered(ops::gather, x, d, index);
}

Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index) {
  check_index(ops::index_select.name, x, index);
  LOCKSTEP_CHECK(index.dim() == 1, InvalidArgument, ops::index_select.name,
                 ": the index has shape ", index.shape(), ", it must have one dimension");
  const int d = wrap_dim(dim, x.dim());
  Shape along = Dims::filled(x.dim(), 1), wanted = x.shape();
  along[d] = wanted[d] = index.numel();
  return gathered(ops::index_select, x, d, index.reshape(along).expand(wanted));
}

}  // namespace lockstep
