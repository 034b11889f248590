#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cpu/loops.hpp"
#include "lockstep/core/dtype.hpp"

/// @file
/// What folding does with elements: the same for a whole tree at once (`fold`) and for the parts of
/// it that several ranks take (`fold_partial`), so both give the same bits.

namespace lockstep::comm::host {

inline constexpr std::int64_t block_elements =
    1024;  // accumulators of one block stay in the L1 cache

template <class T>
using Accumulator = AccumulateType<T>;

// Objects, not functions: a call through a pointer would be made for every element.
// Integer arithmetic wraps, as on the GPU; done unsigned, where wrapping is defined.
inline constexpr auto add = []<class A>(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  else
    return a + b;
};

inline constexpr auto multiply = []<class A>(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  else
    return a * b;
};

// A NaN on any rank must reach every rank; a plain comparison could lose it.
inline constexpr auto smaller = []<class A>(A a, A b) { return b < a || b != b ? b : a; };
inline constexpr auto larger = []<class A>(A a, A b) { return b > a || b != b ? b : a; };

/// out = a (op) b, element by element; floating sums by the vectorised loops of the CPU kernels.
template <class A, class Combine>
void combine_block(A* out, const A* a, const A* b, std::int64_t size, const Combine& combine) {
  if constexpr (std::is_floating_point_v<A> && std::is_same_v<const Combine, decltype(add)>) {
    namespace cpu = lockstep::cpu_kernels;
    cpu::loops().binary(cpu::accumulate_of(dtype_of<A>), BinaryOp::add)(out, a, b, size, {});
  } else {
    for (std::int64_t i = 0; i < size; ++i) out[i] = combine(a[i], b[i]);
  }
}

/// The results as they are.
inline constexpr auto same = []<class A>(A* to, const A* from, std::int64_t size) {
  if (to != from) std::copy_n(from, size, to);
};

/// Floating results times 1 / n where that is exact, else over n.
template <class A>
class Mean {
 public:
  explicit Mean(std::size_t ranks)
      : loop_(cpu_kernels::loops().binary(
            cpu_kernels::accumulate_of(dtype_of<A>),
            std::has_single_bit(ranks) ? BinaryOp::mul : BinaryOp::div)) {
    const A n = static_cast<A>(ranks);
    std::ranges::fill(operand_, std::has_single_bit(ranks) ? A(1) / n : n);
  }
  void operator()(A* to, const A* from, std::int64_t size) const {
    loop_(to, from, operand_, size, {});
  }

 private:
  cpu_kernels::BinaryLoop loop_;
  alignas(64) A operand_[block_elements];
};

}  // namespace lockstep::comm::host
