#include "comm/host/fold.hpp"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "cpu/loops.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm::host {
namespace {

constexpr std::int64_t block_elements = 1024;  // accumulators of one block stay in the L1 cache

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

// One block: the first source starts the accumulators, `combine` takes in each of the others.
template <class T, class Combine, class Scale>
void accumulate(std::span<const std::byte* const> sources, std::int64_t begin, std::int64_t size,
                Accumulator<T>* sum, Accumulator<T>* widened, Combine combine, Scale scale) {
  for (std::size_t r = 0; r < sources.size(); ++r) {
    const Accumulator<T>* values =
        widen(reinterpret_cast<const T*>(sources[r]) + begin, size, widened);
    if (r == 0) {
      for (std::int64_t i = 0; i < size; ++i) sum[i] = scale(values[i], r);
    } else {
      for (std::int64_t i = 0; i < size; ++i) sum[i] = combine(sum[i], scale(values[i], r));
    }
  }
}

template <class T, class Combine, class Scale, class Finish>
void fold_blocks(const Contributions& from, std::byte* out, std::int64_t count, Combine combine,
                 Scale scale, Finish finish) {
  alignas(64) Accumulator<T> sum[block_elements], widened[block_elements];
  T* result = reinterpret_cast<T*>(out);
  const auto store = lockstep::cpu_kernels::loops().store(
      lockstep::cpu_kernels::accumulate_of(dtype_of<T>), dtype_of<T>);
  for (std::int64_t begin = 0; begin < count; begin += block_elements) {
    const std::int64_t size = std::min(block_elements, count - begin);
    accumulate<T>(from.sources, begin, size, sum, widened, combine, scale);
    Accumulator<T>* finished = sum;
    if constexpr (std::is_same_v<T, Accumulator<T>>) finished = result + begin;
    for (std::int64_t i = 0; i < size; ++i) finished[i] = finish(sum[i]);
    if constexpr (!std::is_same_v<T, Accumulator<T>>) store(result + begin, 1, sum, size);
  }
}

template <class T>
void fold_typed(ReduceKind kind, const Contributions& from, std::byte* out, std::int64_t count) {
  using A = Accumulator<T>;
  const auto plain = [](A value, std::size_t) { return value; };
  const auto same = [](A value) { return value; };
  const A ranks = static_cast<A>(from.sources.size());
  switch (kind) {
    case ReduceKind::sum: return fold_blocks<T>(from, out, count, add, plain, same);
    case ReduceKind::average:
      if (is_floating_type<T> && std::has_single_bit(from.sources.size()))  // the inverse is exact
        return fold_blocks<T>(from, out, count, add, plain,
                              [inverse = A(1) / ranks](A sum) { return sum * inverse; });
      return fold_blocks<T>(from, out, count, add, plain, [&](A sum) { return sum / ranks; });
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
