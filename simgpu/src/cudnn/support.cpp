#include "cudnn/support.hpp"

#include <limits>

namespace simgpu::cudnn {
namespace {

using lockstep::ArrayView;
using lockstep::DType;
using lockstep::Shape;
using lockstep::Strides;
using lockstep::backend::cudnn::AttentionArrays;
using lockstep::backend::cudnn::ConvArrays;
using lockstep::kernels::ConvGeometry;

/// Equal strides, where the strides of extents of 1 carry no meaning.
bool lies_as(const ArrayView& view, const Strides& strides) {
  for (int d = 0; d < view.rank(); ++d)
    if (view.shape[d] > 1 && view.strides[d] != strides[d]) return false;
  return true;
}

bool is_nchw(const ArrayView& view) {
  return lies_as(view, lockstep::contiguous_strides(view.shape));
}
bool is_nhwc(const ArrayView& view) {
  return lies_as(view, lockstep::channels_last_strides(view.shape));
}

bool shapes_fit(const ConvArrays& arrays, const ConvGeometry& geometry) {
  const Shape &x = arrays.image.shape, &w = arrays.weight.shape, &y = arrays.result.shape;
  if (geometry.groups < 1 || w[1] * geometry.groups != x[1] || w[0] % geometry.groups != 0)
    return false;
  if (y[0] != x[0] || y[1] != w[0]) return false;
  for (int d = 0; d < 2; ++d) {
    const auto i = static_cast<std::size_t>(d);
    if (geometry.stride[i] < 1 || geometry.dilation[i] < 1 || geometry.padding[i] < 0) return false;
    const std::int64_t reach = geometry.dilation[i] * (w[2 + d] - 1) + 1;
    const std::int64_t room = x[2 + d] + 2 * geometry.padding[i] - reach;
    if (room < 0 || y[2 + d] != room / geometry.stride[i] + 1) return false;
  }
  return true;
}

/// Vector loads of 16 bytes: the address and every step must allow them.
bool allows_vectors(const ArrayView& view) {
  constexpr std::int64_t vector = 16;
  const auto item = static_cast<std::int64_t>(lockstep::size_of(view.dtype));
  if (reinterpret_cast<std::uintptr_t>(view.data) % vector != 0) return false;
  if (view.strides[3] != 1) return false;
  for (int d = 0; d < 3; ++d)
    if (view.shape[d] > 1 && view.strides[d] * item % vector != 0) return false;
  return true;
}

bool mask_fits(const AttentionArrays& arrays) {
  const ArrayView& mask = arrays.mask;
  if (!mask) return true;
  return mask.dtype == arrays.q.dtype && mask.strides[2] != 0 && mask.strides[3] == 1;
}

bool head_size_fits(std::int64_t size) { return size > 0 && size <= 256 && size % 8 == 0; }

}  // namespace

bool has_convolution(const ConvArrays& arrays, const ConvGeometry& geometry) {
  const DType dtype = arrays.image.dtype;
  if (!lockstep::is_floating(dtype)) return false;
  for (const ArrayView* view : {&arrays.image, &arrays.weight, &arrays.result})
    if (!view->data || view->rank() != 4 || view->dtype != dtype || view->numel() == 0)
      return false;
  if (arrays.weight.numel() > std::numeric_limits<std::int32_t>::max()) return false;
  const bool nchw = is_nchw(arrays.image) && is_nchw(arrays.weight) && is_nchw(arrays.result);
  const bool nhwc = is_nhwc(arrays.image) && is_nhwc(arrays.weight) && is_nhwc(arrays.result);
  // Double precision has engines for NCHW alone, and none for groups.
  const bool has_engine = dtype == DType::f64 ? nchw && geometry.groups == 1 : nchw || nhwc;
  return has_engine && shapes_fit(arrays, geometry);
}

bool has_attention(const AttentionArrays& arrays, bool backward) {
  const DType dtype = arrays.q.dtype;
  if (dtype != DType::bf16 && dtype != DType::f16) return false;
  const ArrayView* const forward_arrays[] = {&arrays.q, &arrays.k, &arrays.v, &arrays.out};
  const ArrayView* const gradients[] = {&arrays.dout, &arrays.dq, &arrays.dk, &arrays.dv};
  for (const ArrayView* view : forward_arrays)
    if (view->dtype != dtype || !allows_vectors(*view)) return false;
  if (backward)
    for (const ArrayView* view : gradients)
      if (view->dtype != dtype || !allows_vectors(*view)) return false;
  const Shape &q = arrays.q.shape, &k = arrays.k.shape, &v = arrays.v.shape;
  if (!head_size_fits(q[3]) || !head_size_fits(v[3])) return false;
  if (q[1] % k[1] != 0 || q[1] % v[1] != 0 || k[1] != v[1]) return false;
  if (backward && q[2] == 1 && k[2] == 1) return false;
  return arrays.lse.dtype == DType::f32 && mask_fits(arrays);
}

}  // namespace simgpu::cudnn
