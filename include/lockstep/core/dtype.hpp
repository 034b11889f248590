#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <type_traits>

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/half.hpp"

/// @file
/// Element types of tensors, and dispatch from a run-time DType to a C++ type.

namespace lockstep {

/// Element type of a tensor.
enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, u8, boolean };

/// Short name, as used in messages and files: "f32", "bf16", "bool".
constexpr std::string_view name(DType dtype) {
  constexpr std::string_view names[] = {"f64", "f32", "bf16", "f16", "i64", "i32", "u8", "bool"};
  return names[static_cast<std::size_t>(dtype)];
}

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  constexpr std::uint8_t sizes[] = {8, 4, 2, 2, 8, 4, 1, 1};
  return sizes[static_cast<std::size_t>(dtype)];
}

/// True for f64, f32, bf16 and f16: the types that can carry gradients.
constexpr bool is_floating(DType dtype) { return dtype <= DType::f16; }

/// Writes the short name.
inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

/// Carries a C++ type as a value, so that a generic lambda can receive it.
template <class T>
struct TypeTag {
  using type = T;
};

/// The DType of a C++ element type: `dtype_of<float> == DType::f32`.
template <class T>
inline constexpr DType dtype_of = [] {
  if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, Half>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return DType::i64;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return DType::u8;
  else if constexpr (std::is_same_v<T, bool>)
    return DType::boolean;
  else
    static_assert(!sizeof(T), "not an element type of lockstep");
}();

/// True for the C++ types behind floating dtypes.
template <class T>
inline constexpr bool is_floating_type =
    std::is_floating_point_v<T> || std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>;

/// The type in which sums over T are held: float for f32, bf16 and f16; double for f64; int64 for
/// the integers.
template <class T>
using AccumulateType =
    std::conditional_t<std::is_same_v<T, double>, double,
                       std::conditional_t<is_floating_type<T>, float, std::int64_t>>;

/// Calls `visit(TypeTag<T>{})` with the C++ type of a floating dtype.
/// @param op name for the error message.
/// @throws Unsupported for integer and bool dtypes.
template <class Visitor>
decltype(auto) dispatch_floating(DType dtype, std::string_view op, Visitor&& visit) {
  switch (dtype) {
    case DType::f64: return visit(TypeTag<double>{});
    case DType::f32: return visit(TypeTag<float>{});
    case DType::bf16: return visit(TypeTag<BFloat16>{});
    case DType::f16: return visit(TypeTag<Half>{});
    default: LOCKSTEP_THROW(Unsupported, op, ": dtype ", dtype, " is not a floating type");
  }
}

/// Calls `visit(TypeTag<T>{})` with the C++ type of any dtype but bool.
/// @param op name for the error message.
/// @throws Unsupported for bool.
template <class Visitor>
decltype(auto) dispatch_numeric(DType dtype, std::string_view op, Visitor&& visit) {
  switch (dtype) {
    case DType::i64: return visit(TypeTag<std::int64_t>{});
    case DType::i32: return visit(TypeTag<std::int32_t>{});
    case DType::u8: return visit(TypeTag<std::uint8_t>{});
    case DType::boolean: LOCKSTEP_THROW(Unsupported, op, ": dtype bool has no arithmetic");
    default: return dispatch_floating(dtype, op, static_cast<Visitor&&>(visit));
  }
}

/// Calls `visit(TypeTag<T>{})` with the C++ type of any dtype.
template <class Visitor>
decltype(auto) dispatch_all(DType dtype, std::string_view op, Visitor&& visit) {
  if (dtype == DType::boolean) return visit(TypeTag<bool>{});
  return dispatch_numeric(dtype, op, static_cast<Visitor&&>(visit));
}

}  // namespace lockstep
