#pragma once

#include <string_view>

#include "lockstep/optim/state_format.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// States of optimizers in memory, and as they are saved.

namespace lockstep::optim {

/// The dtype in which an optimizer computes, and its state is saved: in bf16 a second moment with
/// beta2 = 0.999 would stand still.
constexpr DType state_dtype(DType parameter) {
  return parameter == DType::f64 ? DType::f64 : DType::f32;
}

/// The format of a state of that many elements where `wanted` was asked for.
StateFormat format_for(StateFormat wanted, std::int64_t elements);
/// The dtype of its memory, of a parameter of that dtype.
DType stored_dtype(StateFormat format, DType parameter);

/// A state as it lies in memory.
struct StoredState {
  Tensor values;  ///< f32 or f64, bf16, or codes (u8)
  Tensor scales;  ///< of codes; else undefined
};

/// Zeros. @param dtype of the parameter
StoredState zero_state(StateFormat format, const Shape& shape, DType dtype, Device device);
/// From f32 or f64, to the nearest, or the tensor itself. What `restored` gave comes out as it was.
StoredState stored(const Tensor& full, std::string_view name, StateFormat format);
/// In f32 or f64: the state's own memory where it is kept so, else a copy.
Tensor restored(const StoredState& state, std::string_view name);

/// True for states whose elements are never below 0, by their names.
bool is_nonnegative(std::string_view name);

}  // namespace lockstep::optim
