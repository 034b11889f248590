#include "cudnn/problem_text.hpp"

#include <sstream>

namespace simgpu::cudnn {
namespace {

using lockstep::ArrayView;

template <class List>
std::string joined(const List& list) {
  std::string text;
  for (const std::int64_t value : list) text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

std::string text_of(const ArrayView& view) {
  if (!view) return "-";
  const auto address = reinterpret_cast<std::uintptr_t>(view.data) | 16;
  const std::uintptr_t alignment = address & ~(address - 1);
  return std::string(name(view.dtype)) + ":" + std::to_string(alignment) + ":" +
         joined(view.shape) + ":" + joined(view.strides);
}

}  // namespace

std::string problem_text(lockstep::backend::cudnn::ConvDirection direction,
                         const lockstep::backend::cudnn::ConvArrays& arrays,
                         const lockstep::kernels::ConvGeometry& geometry) {
  std::ostringstream out;
  out << "convolution|" << static_cast<int>(direction) << '|' << text_of(arrays.image) << '|'
      << text_of(arrays.weight) << '|' << text_of(arrays.result) << '|' << joined(geometry.stride)
      << '|' << joined(geometry.padding) << '|' << joined(geometry.dilation) << '|'
      << geometry.groups;
  return out.str();
}

std::string problem_text(const lockstep::backend::cudnn::AttentionArrays& arrays,
                         lockstep::kernels::AttentionOptions options) {
  std::ostringstream out;
  out << "attention|" << options.scale << '|' << options.causal;
  for (const ArrayView* view : {&arrays.q, &arrays.k, &arrays.v, &arrays.out, &arrays.lse,
                                &arrays.mask, &arrays.dout, &arrays.dq, &arrays.dk, &arrays.dv})
    out << '|' << text_of(*view);
  return out.str();
}

}  // namespace simgpu::cudnn
