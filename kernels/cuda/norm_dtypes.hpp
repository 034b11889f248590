#pragma once

#include <string_view>

#include "lockstep/core/dtype.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::cuda_kernels {

/// Calls `visit(TypeTag<X>{}, TypeTag<Y>{})` for a norm of an x whose result is a y: of one
/// floating dtype, or in a lower precision than f32. @throws Unsupported for others.
template <class Visitor>
void dispatch_norm(DType x, DType y, std::string_view op, const Visitor& visit) {
  if (x == y) return dispatch_floating(x, op, [&]<class T>(TypeTag<T> tag) { visit(tag, tag); });
  if (x == DType::f32 && y == DType::bf16) return visit(TypeTag<float>{}, TypeTag<BFloat16>{});
  if (x == DType::f32 && y == DType::f16) return visit(TypeTag<float>{}, TypeTag<Half>{});
  LOCKSTEP_THROW(Unsupported, op, ": ", y, " is not offered of ", x);
}

}  // namespace lockstep::cuda_kernels
