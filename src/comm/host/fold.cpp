#include "comm/host/fold.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lockstep/core/error.hpp"

namespace lockstep::comm::host {
namespace {

constexpr std::int64_t block_elements = 1024;  // accumulators of one block stay in the L1 cache

template <class T>
using Accumulator = AccumulateType<T>;

// Integer arithmetic wraps, as on the GPU; done unsigned, where wrapping is defined.
template <class A>
A add(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  else
    return a + b;
}

template <class A>
A multiply(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  else
    return a * b;
}

// A NaN on any rank must reach every rank; a plain comparison could lose it.
template <class A>
A smaller(A a, A b) {
  return b < a || b != b ? b : a;
}

template <class A>
A larger(A a, A b) {
  return b > a || b != b ? b : a;
}

template <class T>
Accumulator<T> widen(T value) {
  return static_cast<Accumulator<T>>(value);
}

// One block: the first source starts the accumulators, `combine` takes in each of the others.
template <class T, class Combine, class Load>
void accumulate(std::span<const std::byte* const> sources, std::int64_t begin, std::int64_t size,
                Accumulator<T>* sum, Combine combine, Load load) {
  for (std::size_t r = 0; r < sources.size(); ++r) {
    const T* source = reinterpret_cast<const T*>(sources[r]) + begin;
    if (r == 0) {
      for (std::int64_t i = 0; i < size; ++i) sum[i] = load(source[i], r);
    } else {
      for (std::int64_t i = 0; i < size; ++i) sum[i] = combine(sum[i], load(source[i], r));
    }
  }
}

template <class T, class Combine, class Load, class Finish>
void fold_blocks(const Contributions& from, std::byte* out, std::int64_t count, Combine combine,
                 Load load, Finish finish) {
  Accumulator<T> sum[block_elements];
  T* result = reinterpret_cast<T*>(out);
  for (std::int64_t begin = 0; begin < count; begin += block_elements) {
    const std::int64_t size = std::min(block_elements, count - begin);
    accumulate<T>(from.sources, begin, size, sum, combine, load);
    for (std::int64_t i = 0; i < size; ++i) result[begin + i] = static_cast<T>(finish(sum[i]));
  }
}

template <class T>
void fold_typed(ReduceKind kind, const Contributions& from, std::byte* out, std::int64_t count) {
  using A = Accumulator<T>;
  const auto plain = [](T value, std::size_t) { return widen(value); };
  const auto same = [](A value) { return value; };
  const A ranks = static_cast<A>(from.sources.size());
  switch (kind) {
    case ReduceKind::sum: return fold_blocks<T>(from, out, count, add<A>, plain, same);
    case ReduceKind::average:
      return fold_blocks<T>(from, out, count, add<A>, plain, [&](A sum) { return sum / ranks; });
    case ReduceKind::min: return fold_blocks<T>(from, out, count, smaller<A>, plain, same);
    case ReduceKind::max: return fold_blocks<T>(from, out, count, larger<A>, plain, same);
    case ReduceKind::product: return fold_blocks<T>(from, out, count, multiply<A>, plain, same);
    case ReduceKind::scaled_sum:
      if constexpr (is_floating_type<T>) {
        const auto scaled = [&](T value, std::size_t r) {
          return widen(value) * static_cast<A>(from.factors[r]);
        };
        return fold_blocks<T>(from, out, count, add<A>, scaled, same);
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
