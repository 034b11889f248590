#include "nccl/reduction.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/half.hpp"
#include "nccl/signature.hpp"

namespace simgpu::nccl {
namespace {

constexpr std::size_t chunk = 1024;

template <class T>
constexpr bool is_small_float =
    std::is_same_v<T, lockstep::Half> || std::is_same_v<T, lockstep::BFloat16>;
template <class T>
using Accumulator = std::conditional_t<is_small_float<T>, float, T>;
// Integer sums wrap around, which only unsigned ones may.
template <class T, bool = std::is_integral_v<T>>
struct Wrapping {
  using Type = std::make_unsigned_t<T>;
};
template <class T>
struct Wrapping<T, false> {
  using Type = T;
};

template <class T>
T add(T a, T b) {
  using W = typename Wrapping<T>::Type;
  return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
}

template <class T>
T multiply(T a, T b) {
  // Through 64 bits: small unsigned types would be promoted to int and overflow.
  using W = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
  return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
}

template <class T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return std::fmin(a, b);
  else
    return std::min(a, b);
}

template <class T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return std::fmax(a, b);
  else
    return std::max(a, b);
}

template <class T>
Accumulator<T> factor_of(const Contribution& rank, int op, std::size_t ranks) {
  T factor{};
  if (op == ncclAvg && !std::is_integral_v<T>)
    factor = static_cast<T>(static_cast<Accumulator<T>>(1.0 / static_cast<double>(ranks)));
  else
    std::memcpy(static_cast<void*>(&factor), &rank.factor, sizeof factor);
  return static_cast<Accumulator<T>>(factor);
}

// Adds one rank's values to the sums.
template <class T, class A = Accumulator<T>>
void accumulate(A* sums, const T* values, std::size_t count, int op, A factor) {
  const auto each = [&](auto combine) {
    for (std::size_t i = 0; i < count; ++i) sums[i] = combine(sums[i], static_cast<A>(values[i]));
  };
  switch (op) {
    case ncclProd: return each([](A a, A b) { return multiply(a, b); });
    case ncclMax: return each([](A a, A b) { return larger(a, b); });
    case ncclMin: return each([](A a, A b) { return smaller(a, b); });
    case ncclSum: return each([](A a, A b) { return add(a, b); });
    default: return each([factor](A a, A b) { return add(a, multiply(b, factor)); });
  }
}

template <class T>
void reduce_typed(int op, std::span<const Contribution> ranks, std::size_t count, T* output) {
  using A = Accumulator<T>;
  const bool divides = op == ncclAvg && std::is_integral_v<T>;
  const bool scales = (op == ncclAvg && !divides) || op == ncclNumOps;
  std::array<A, chunk> sums;
  for (std::size_t begin = 0; begin < count; begin += chunk) {
    const std::size_t n = std::min(chunk, count - begin);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const T* values = reinterpret_cast<const T*>(ranks[r].data) + begin;
      const A factor = scales ? factor_of<T>(ranks[r], op, ranks.size()) : A{};
      if (r == 0)
        for (std::size_t i = 0; i < n; ++i)
          sums[i] =
              scales ? multiply(static_cast<A>(values[i]), factor) : static_cast<A>(values[i]);
      else
        accumulate<T>(sums.data(), values, n, divides ? ncclSum : op, factor);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if constexpr (std::is_integral_v<T>)
        if (divides) sums[i] = static_cast<A>(sums[i] / static_cast<A>(ranks.size()));
      output[begin + i] = static_cast<T>(sums[i]);
    }
  }
}

// Elements that NCCL's kernel for one rank comes to (`oneRankReduce`, 2.19 to 2.29.3): each block
// takes a part of 16-byte packs, made from a quotient that is rounded down.
std::size_t reached_alone(ncclDataType_t type, std::size_t count) {
  const std::size_t size = size_of(type), pack = 16 / size;
  const std::size_t blocks = std::min<std::size_t>(32, (count * size + 16'383) / 16'384);
  const std::size_t part = (count / blocks + pack - 1) / pack * pack;
  return std::min(count, blocks * part);
}

bool scales_on_one_rank(ncclDataType_t type, int op) {
  const bool is_integer = type < ncclFloat16;
  return op == ncclNumOps || (op == ncclAvg && !is_integer);
}

}  // namespace

bool can_reduce(ncclDataType_t type) { return type >= ncclInt8 && type <= ncclBfloat16; }

void reduce(ncclDataType_t type, int op, std::span<const Contribution> ranks, std::size_t count,
            std::byte* output) {
  if (ranks.size() == 1 && count > 0 && scales_on_one_rank(type, op))
    count = reached_alone(type, count);
  const auto as = [&](auto tag) {
    using T = decltype(tag);
    reduce_typed(op, ranks, count, reinterpret_cast<T*>(output));
  };
  switch (type) {
    case ncclInt8: return as(std::int8_t{});
    case ncclUint8: return as(std::uint8_t{});
    case ncclInt32: return as(std::int32_t{});
    case ncclUint32: return as(std::uint32_t{});
    case ncclInt64: return as(std::int64_t{});
    case ncclUint64: return as(std::uint64_t{});
    case ncclFloat16: return as(lockstep::Half{});
    case ncclFloat32: return as(float{});
    case ncclFloat64: return as(double{});
    case ncclBfloat16: return as(lockstep::BFloat16{});
    default: return;
  }
}

}  // namespace simgpu::nccl
