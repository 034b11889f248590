#include "cpu/loops/fill.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

template <class To, class From>
LOCKSTEP_ALWAYS_INLINE To convert(From value) {
  if constexpr (std::is_same_v<To, bool>)
    return value != From(0);
  else if constexpr (std::is_same_v<To, BFloat16> || std::is_same_v<To, Half>)
    return To(static_cast<float>(value));
  else if constexpr (std::is_floating_point_v<From> && sizeof(To) < 4)
    // Through i64, so that what does not fit wraps instead of being undefined.
    return static_cast<To>(static_cast<std::int64_t>(value));
  else
    return static_cast<To>(value);
}

template <class T>
void load(void* tile, const void* from, std::int64_t stride, std::int64_t n) {
  using A = AccumulateType<T>;
  A* to = static_cast<A*>(tile);
  const T* source = static_cast<const T*>(from);
  if (stride == 1) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<A>(source[i]);
  } else if (stride == 0) {
    const A value = static_cast<A>(*source);
    for (std::int64_t i = 0; i < n; ++i) to[i] = value;
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<A>(source[i * stride]);
  }
}

template <class A, class T>
void store(void* to, std::int64_t stride, const void* tile, std::int64_t n) {
  T* target = static_cast<T*>(to);
  const A* from = static_cast<const A*>(tile);
  if (stride == 1) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) target[i] = convert<T>(from[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) target[i * stride] = convert<T>(from[i]);
  }
}

template <class T>
void add_dtype(Loops& loops) {
  loops.load[static_cast<std::size_t>(dtype_of<T>)] = load<T>;
  loops.store.at(Accumulate::f32, dtype_of<T>) = store<float, T>;
  loops.store.at(Accumulate::f64, dtype_of<T>) = store<double, T>;
  loops.store.at(Accumulate::i64, dtype_of<T>) = store<std::int64_t, T>;
}

}  // namespace

void fill_convert(Loops& loops) {
  add_dtype<double>(loops);
  add_dtype<float>(loops);
  add_dtype<BFloat16>(loops);
  add_dtype<Half>(loops);
  add_dtype<std::int64_t>(loops);
  add_dtype<std::int32_t>(loops);
  add_dtype<std::uint8_t>(loops);
  add_dtype<bool>(loops);
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
