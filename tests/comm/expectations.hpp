#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/comm/reduce_op.hpp"
#include "lockstep/core/dtype.hpp"

/// @file
/// Values of each rank, and what collectives must make of them.

namespace lockstep::comm {

inline const std::vector<std::int64_t> contract_sizes{0, 1, 7, 1009, 65537, 1'000'003};

/// Small whole numbers, different on each rank: exact in every dtype.
template <class T>
T contract_value(int rank, std::int64_t index) {
  const auto number = (index * 7 + rank * 3) % 4;
  return static_cast<T>(static_cast<float>(number));
}

template <class T>
double as_double(T value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<double>(value);
  else
    return static_cast<double>(static_cast<float>(value));
}

template <class T>
std::vector<T> contract_values(int rank, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] = contract_value<T>(rank, i);
  return values;
}

/// The reduction of the ranks' contract values at one index, in double.
template <class T>
double expected_reduction(ReduceKind kind, int ranks, std::int64_t index) {
  double result = as_double(contract_value<T>(0, index));
  for (int rank = 1; rank < ranks; ++rank) {
    const double value = as_double(contract_value<T>(rank, index));
    switch (kind) {
      case ReduceKind::min: result = std::min(result, value); break;
      case ReduceKind::max: result = std::max(result, value); break;
      case ReduceKind::product: result *= value; break;
      default: result += value;
    }
  }
  if (kind == ReduceKind::average) result /= ranks;
  return result;
}

/// How far from an exact average a float may be, in parts of it: where no dtype holds 1/n, a
/// backend may multiply the ranks' values by it, and round each.
template <class T>
double average_slack(int ranks) {
  if constexpr (std::is_floating_point_v<T>)
    if (!std::has_single_bit(static_cast<unsigned>(ranks)))
      return 4 * static_cast<double>(std::numeric_limits<T>::epsilon());
  return 0;
}

/// Number of elements from `begin` on that are not the exact reduction, rounded once.
template <class T>
std::int64_t count_wrong(const std::vector<T>& values, ReduceKind kind, int ranks,
                         std::int64_t begin = 0) {
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double exact = expected_reduction<T>(kind, ranks, begin + static_cast<std::int64_t>(i));
    T rounded;
    if constexpr (std::is_arithmetic_v<T>)
      rounded = static_cast<T>(exact);
    else
      rounded = static_cast<T>(static_cast<float>(exact));
    const double slack = kind == ReduceKind::average ? average_slack<T>(ranks) : 0;
    if (!(std::abs(as_double(values[i]) - as_double(rounded)) <= slack * exact)) ++wrong;
  }
  return wrong;
}

/// Calls `body(TypeTag<T>{})` for every dtype that collectives carry and reduce.
template <class Body>
void for_each_dtype(Body body) {
  for (const DType dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8})
    dispatch_numeric(dtype, "contract", body);
}

/// All-reduces values of which the last rank's has a NaN; the NaN must be left, alone.
inline void expect_nan_is_kept(Communicator& group, const ReduceOp& reduction) {
  std::vector<float> values(3, 1.0f);
  if (group.rank() == group.size() - 1) values[1] = std::nanf("");
  group.all_reduce(Buffer(std::span(values)), reduction).wait();
  EXPECT_TRUE(std::isnan(values[1])) << reduction.kind;
  EXPECT_FALSE(std::isnan(values[2])) << reduction.kind;
}

/// Runs `call` on each rank and expects the same Mismatch everywhere, with all `parts` in it.
template <class Call>
void expect_mismatch(Communicator& group, Call call, const std::vector<std::string>& parts) {
  if (group.size() == 1) return;
  try {
    call();
    ADD_FAILURE() << "rank " << group.rank() << " noticed nothing";
  } catch (const Mismatch& error) {
    for (const std::string& part : parts)
      EXPECT_THAT(std::string(error.what()), ::testing::HasSubstr(part));
  }
  // The group stays failed, with the first error.
  EXPECT_THROW(group.barrier().wait(), Mismatch);
}

}  // namespace lockstep::comm
