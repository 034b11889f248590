#pragma once

#include "cuda/pointwise.hpp"
#include "functional/checks.hpp"
#include "functional/constants.hpp"

namespace lockstep::cuda_kernels {

/// Calls `visit(TypeTag<T>{})` for the dtypes that a functor serves: floating, and i64, i32 and u8
/// where it says `integers`. @throws Unsupported for others.
template <template <class> class Functor, class Visitor>
void dispatch_served(DType dtype, std::string_view op, OpConstants constants, Device device,
                     Visitor&& visit) {
  if constexpr (Functor<std::int64_t>::integers) {
    const bool integers = dtype == DType::i64 || dtype == DType::i32 || dtype == DType::u8;
    if (integers) functional::check_whole_constants(op, dtype, constants);
    if (dtype == DType::i64) return visit(TypeTag<std::int64_t>{});
    if (dtype == DType::i32) return visit(TypeTag<std::int32_t>{});
    if (dtype == DType::u8) return visit(TypeTag<std::uint8_t>{});
  }
  LOCKSTEP_CHECK(is_floating(dtype), Unsupported, op, ": dtype ", dtype,
                 " is not offered on device ", device, functional::advice_of(dtype));
  dispatch_floating(dtype, op, visit);
}

}  // namespace lockstep::cuda_kernels
