#include "comm/host/fold.hpp"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "cpu/loops.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm::host {
namespace {

constexpr std::int64_t block_elements = 1024;  // accumulators of one block stay in the L1 cache
constexpr std::size_t most_levels = 20;        // of the tree: up to 2^19 ranks

template <class T>
using Accumulator = AccumulateType<T>;

// Objects, not functions: a call through a pointer would be made for every element.
// Integer arithmetic wraps, as on the GPU; done unsigned, where wrapping is defined.
constexpr auto add = []<class A>(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  else
    return a + b;
};

constexpr auto multiply = []<class A>(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  else
    return a * b;
};

// A NaN on any rank must reach every rank; a plain comparison could lose it.
constexpr auto smaller = []<class A>(A a, A b) { return b < a || b != b ? b : a; };
constexpr auto larger = []<class A>(A a, A b) { return b > a || b != b ? b : a; };

/// The values in the accumulation type: where they are, or in `room`.
template <class T>
const Accumulator<T>* widen(const T* from, std::int64_t size, Accumulator<T>* room) {
  if constexpr (std::is_same_v<T, Accumulator<T>>) return from;
  lockstep::cpu_kernels::loops().load[static_cast<std::size_t>(dtype_of<T>)](room, from, 1, size);
  return room;
}

/// Scaling that leaves values as they are, where they are.
struct Unscaled {};

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

/// Folds blocks: contributions of neighbours first, as a tournament is played. On the way lies a
/// partial result for each bit of how many contributions were taken in.
template <class T, class Combine, class Scale>
class Tree {
 public:
  using A = Accumulator<T>;

  Tree(const Contributions& from, Combine combine, Scale scale)
      : from_(from), combine_(combine), scale_(scale) {}

  /// @param room for the result, which may lie over a contribution.
  /// @return `size` results, from `begin` on: in `room`, or the only contribution.
  const A* fold(std::int64_t begin, std::int64_t size, A* room) {
    levels_ = 0;
    for (std::size_t leaf = 0; leaf < from_.sources.size(); ++leaf) {
      take_in(leaf, begin, size);
      const bool is_last = leaf + 1 == from_.sources.size();
      for (std::size_t taken = leaf + 1; taken % 2 == 0; taken /= 2)
        combine_last(size, is_last ? room : nullptr);
    }
    while (levels_ > 1) combine_last(size, room);
    return partial_[0];
  }

 private:
  void take_in(std::size_t leaf, std::int64_t begin, std::int64_t size) {
    A* const room = room_[levels_];
    const A* values = widen(reinterpret_cast<const T*>(from_.sources[leaf]) + begin, size, room);
    if constexpr (!std::is_same_v<Scale, Unscaled>) {
      for (std::int64_t i = 0; i < size; ++i) room[i] = scale_(values[i], leaf);
      values = room;
    }
    partial_[levels_++] = values;
  }
  /// @param room for what is then the only partial result, or null.
  void combine_last(std::int64_t size, A* room) {
    --levels_;
    A* const to = levels_ == 1 && room ? room : room_[levels_ - 1];
    combine_block(to, partial_[levels_ - 1], partial_[levels_], size, combine_);
    partial_[levels_ - 1] = to;
  }

  const Contributions& from_;
  Combine combine_;
  Scale scale_;
  std::size_t levels_ = 0;
  const A* partial_[most_levels];
  alignas(64) A room_[most_levels][block_elements];
};

/// @param finish makes `size` results of what was folded: (to, from, size), in place or not.
template <class T, class Combine, class Scale, class Finish>
void fold_blocks(const Contributions& from, std::byte* out, std::int64_t count, Combine combine,
                 Scale scale, const Finish& finish) {
  using A = Accumulator<T>;
  constexpr bool is_direct = std::is_same_v<T, A>;
  Tree<T, Combine, Scale> tree(from, combine, scale);
  alignas(64) A room[block_elements];
  T* result = reinterpret_cast<T*>(out);
  const auto store = lockstep::cpu_kernels::loops().store(
      lockstep::cpu_kernels::accumulate_of(dtype_of<T>), dtype_of<T>);
  for (std::int64_t begin = 0; begin < count; begin += block_elements) {
    const std::int64_t size = std::min(block_elements, count - begin);
    A* place = room;
    if constexpr (is_direct) place = result + begin;
    finish(place, tree.fold(begin, size, place), size);
    if constexpr (!is_direct) store(result + begin, 1, room, size);
  }
}

/// The results as they are.
constexpr auto same = []<class A>(A* to, const A* from, std::int64_t size) {
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

template <class T>
void fold_typed(ReduceKind kind, const Contributions& from, std::byte* out, std::int64_t count) {
  using A = Accumulator<T>;
  constexpr Unscaled plain;
  const std::size_t ranks = from.sources.size();
  switch (kind) {
    case ReduceKind::sum: return fold_blocks<T>(from, out, count, add, plain, same);
    case ReduceKind::average:
      if constexpr (is_floating_type<T>)
        return fold_blocks<T>(from, out, count, add, plain, Mean<A>(ranks));
      else
        return fold_blocks<T>(from, out, count, add, plain,
                              [n = static_cast<A>(ranks)](A* to, const A* sums, std::int64_t size) {
                                for (std::int64_t i = 0; i < size; ++i) to[i] = sums[i] / n;
                              });
    case ReduceKind::min: return fold_blocks<T>(from, out, count, smaller, plain, same);
    case ReduceKind::max: return fold_blocks<T>(from, out, count, larger, plain, same);
    case ReduceKind::product: return fold_blocks<T>(from, out, count, multiply, plain, same);
    case ReduceKind::scaled_sum:
      if constexpr (is_floating_type<T>) {
        const auto scaled = [&](A value, std::size_t r) {
          return value * static_cast<A>(from.factors[r]);
        };
        return fold_blocks<T>(from, out, count, add, scaled, same);
      }
      LOCKSTEP_THROW(Unsupported, "scaled_sum needs a floating dtype, not ", dtype_of<T>);
  }
}

}  // namespace

void fold(DType dtype, ReduceKind kind, const Contributions& from, std::byte* out,
          std::int64_t count) {
  dispatch_numeric(dtype, "collective reduction", [&](auto tag) {
    fold_typed<typename decltype(tag)::type>(kind, from, out, count);
  });
}

}  // namespace lockstep::comm::host
