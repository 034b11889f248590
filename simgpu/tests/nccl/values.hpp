#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <nccl.h>

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/half.hpp"

/// @file
/// Elements for collectives, of every type, and what a plain loop makes of them.

namespace simgpu::testing {

template <class T>
double as_double(T value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<double>(value);
  else
    return static_cast<double>(static_cast<float>(value));
}

template <class T>
T from_double(double value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(value);
  else
    return T(static_cast<float>(value));
}

/// Small whole numbers, different on each rank: exact in every type, sums and products of up to
/// four of them too.
inline double whole_value(int rank, std::size_t index) {
  return static_cast<double>((index * 7 + static_cast<std::size_t>(rank) * 3) % 3 + 1);
}

template <class T>
std::vector<T> whole_values(int rank, std::size_t count, std::size_t first = 0) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = from_double<T>(whole_value(rank, first + i));
  return values;
}

inline double combine(ncclRedOp_t op, double a, double b) {
  switch (op) {
    case ncclProd: return a * b;
    case ncclMax: return std::max(a, b);
    case ncclMin: return std::min(a, b);
    default: return a + b;
  }
}

/// The reduction of all ranks' whole values at an index.
template <class T>
T reduced(ncclRedOp_t op, int ranks, std::size_t index) {
  double result = whole_value(0, index);
  for (int rank = 1; rank < ranks; ++rank) result = combine(op, result, whole_value(rank, index));
  if (op == ncclAvg) result /= ranks;
  return from_double<T>(result);
}

/// Calls `body(T{}, ncclDataType_t)` for every type that is reduced.
template <class Body>
void for_each_type(Body body) {
  body(std::int8_t{}, ncclInt8);
  body(std::uint8_t{}, ncclUint8);
  body(std::int32_t{}, ncclInt32);
  body(std::uint32_t{}, ncclUint32);
  body(std::int64_t{}, ncclInt64);
  body(std::uint64_t{}, ncclUint64);
  body(lockstep::Half{}, ncclFloat16);
  body(lockstep::BFloat16{}, ncclBfloat16);
  body(float{}, ncclFloat32);
  body(double{}, ncclFloat64);
}

/// Elements that differ, in bits.
template <class T>
std::size_t count_different(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return a.size() + b.size();
  std::size_t different = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (as_double(a[i]) != as_double(b[i])) ++different;
  return different;
}

}  // namespace simgpu::testing
