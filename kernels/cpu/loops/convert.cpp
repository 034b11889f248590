#include "cpu/loops/fill.hpp"
#include "cpu/source_rows.hpp"

#if defined(__F16C__)
#include <immintrin.h>
#endif

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

template <class A, class T>
void load_typed(A* to, const T* from, std::int64_t stride, std::int64_t n) {
  if (stride == 1) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<A>(from[i]);
  } else if (stride == 0) {
    const A value = static_cast<A>(*from);
    for (std::int64_t i = 0; i < n; ++i) to[i] = value;
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<A>(from[i * stride]);
  }
}

template <class T>
void load(void* tile, const void* from, std::int64_t stride, std::int64_t n) {
  load_typed(static_cast<AccumulateType<T>*>(tile), static_cast<const T*>(from), stride, n);
}

template <class T>
void load_rows(void* tile, const SourceRows& source) {
  using A = AccumulateType<T>;
  copy_each_row<A, T>(
      static_cast<A*>(tile), source,
      [](A* to, std::int64_t to_stride, const T* from, std::int64_t stride, std::int64_t n) {
        if (to_stride == 1) return load_typed(to, from, stride, n);
        for (std::int64_t i = 0; i < n; ++i) to[i * to_stride] = static_cast<A>(from[i * stride]);
      });
}

#if defined(__F16C__)
/// As `Half` rounds, by the processor's own instruction, of which GCC makes no vectors.
/// @return how many are done, from the first on.
inline std::int64_t round_vectors(Half* to, const float* from, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}
#endif

template <class A, class T>
void store(void* to, std::int64_t stride, const void* tile, std::int64_t n) {
  T* target = static_cast<T*>(to);
  const A* from = static_cast<const A*>(tile);
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, Half> && std::is_same_v<A, float>)
    if (stride == 1) {
      const std::int64_t done = round_vectors(target, from, n);
      target += done;
      from += done;
      n -= done;
    }
#endif
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
  loops.load_rows[static_cast<std::size_t>(dtype_of<T>)] = load_rows<T>;
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
