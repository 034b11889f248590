#pragma once

#include "cuda/pointwise.hpp"
#include "functional/constants.hpp"

namespace lockstep::cuda_kernels {

/// Calls `visit(TypeTag<T>{})` for the dtypes that a functor serves: floating, and i64 and i32
/// where it says `integers`.
template <template <class> class Functor, class Visitor>
void dispatch_served(DType dtype, std::string_view op, Visitor&& visit) {
  if constexpr (Functor<std::int64_t>::integers) {
    if (dtype == DType::i64) return visit(TypeTag<std::int64_t>{});
    if (dtype == DType::i32) return visit(TypeTag<std::int32_t>{});
  }
  dispatch_floating(dtype, op, visit);
}

}  // namespace lockstep::cuda_kernels
