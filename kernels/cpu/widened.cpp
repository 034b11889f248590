#include "cpu/widened.hpp"

#include "arguments/elementwise.hpp"
#include "cpu/tiles.hpp"

namespace lockstep::cpu_kernels {

Widened::Widened(const ArrayView& view, Accumulate type) {
  if (!view) return;
  data_ = view.data;
  if (is_accumulate_type(view.dtype) && accumulate_of(view.dtype) == type) return;
  storage_.resize(static_cast<std::size_t>(view.numel()));
  data_ = storage_.data();
  const DType dtype = type == Accumulate::f64 ? DType::f64 : DType::f32;
  elementwise::copy(
      {.out = {storage_.data(), dtype, view.shape, contiguous_strides(view.shape)}, .in = view},
      StreamRef{});
}

}  // namespace lockstep::cpu_kernels
