#include <algorithm>

#include "cpu/loops/fill.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

/// Floats are summed in double: a long line stays accurate. Integers count modulo 2^64.
template <class T>
using Total = std::conditional_t<is_floating_type<T>, double, std::uint64_t>;

template <ReduceOp op, class T>
constexpr Total<T> nothing = op == ReduceOp::prod ? 1 : 0;

/// Takes an element into its line's total, which is the running result there.
template <ReduceOp op, class T>
LOCKSTEP_ALWAYS_INLINE void take(Total<T>& total, const T& from, T& to) {
  const auto value = static_cast<Total<T>>(static_cast<AccumulateType<T>>(from));
  total = op == ReduceOp::prod ? total * value : total + value;
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)
    to = T(static_cast<float>(total));
  else
    to = static_cast<T>(total);
}

/// Lines whose steps, each of which waits for the one before it, go on side by side. Not more, as
/// lines a power of two apart share few places of the cache.
constexpr std::int64_t side_by_side = 4;

template <ReduceOp op, std::int64_t lines, class T>
void scan_few(const ScanLines& s, std::int64_t first) {
  const T* from = static_cast<const T*>(s.in) + first * s.in_next;
  T* to = static_cast<T*>(s.out) + first * s.out_next;
  Total<T> total[lines];
  for (auto& each : total) each = nothing<op, T>;
  for (std::int64_t i = 0; i < s.length; ++i, from += s.in_step, to += s.out_step)
    for (std::int64_t k = 0; k < lines; ++k)
      take<op, T>(total[k], from[k * s.in_next], to[k * s.out_next]);
}

/// Lines whose elements are neighbours: vectors of lines.
template <ReduceOp op, class T>
void scan_neighbours(const ScanLines& s) {
  constexpr std::int64_t most = 1024;
  for (std::int64_t first = 0; first < s.lines; first += most) {
    const std::int64_t lines = std::min(most, s.lines - first);
    const T* from = static_cast<const T*>(s.in) + first;
    T* to = static_cast<T*>(s.out) + first;
    Total<T> total[most];
    for (std::int64_t k = 0; k < lines; ++k) total[k] = nothing<op, T>;
    for (std::int64_t i = 0; i < s.length; ++i, from += s.in_step, to += s.out_step)
#pragma GCC ivdep
      for (std::int64_t k = 0; k < lines; ++k) take<op, T>(total[k], from[k], to[k]);
  }
}

template <ReduceOp op, class T>
void scan(const ScanLines& s) {
  if (s.out_next == 1 && s.in_next == 1 && s.lines >= 2 * side_by_side)
    return scan_neighbours<op, T>(s);
  std::int64_t k = 0;
  for (; k + side_by_side <= s.lines; k += side_by_side) scan_few<op, side_by_side, T>(s, k);
  for (; k < s.lines; ++k) scan_few<op, 1, T>(s, k);
}

/// The first of n elements that equals `wanted`, or n; without a branch, by vectors.
template <class T>
LOCKSTEP_ALWAYS_INLINE int first_equal_of_block(const T* x, T wanted, int n) {
  int place = n;
  for (int k = 0; k < n; ++k) {
    const bool equal = (x[k] == wanted) | ((x[k] != x[k]) & (wanted != wanted));
    const int here = equal ? k : n;
    place = here < place ? here : place;
  }
  return place;
}

template <class T>
std::int64_t first_equal(const void* x, const void* value, std::int64_t n) {
  const T* const from = static_cast<const T*>(x);
  const T wanted = *static_cast<const T*>(value);
  constexpr int block = 64;
  std::int64_t i = 0;
  for (; i + block <= n; i += block)
    if (const int place = first_equal_of_block(from + i, wanted, block); place < block)
      return i + place;
  return i + first_equal_of_block(from + i, wanted, static_cast<int>(n - i));
}

template <class T>
void add_dtype(LineLoops& loops) {
  loops.running_sums[static_cast<std::size_t>(dtype_of<T>)] = scan<ReduceOp::sum, T>;
  loops.running_products[static_cast<std::size_t>(dtype_of<T>)] = scan<ReduceOp::prod, T>;
  if constexpr (std::is_same_v<T, AccumulateType<T>>)
    loops.first_equal[static_cast<std::size_t>(accumulate_tag<T>)] = first_equal<T>;
}

}  // namespace

void fill_lines(LineLoops& loops) {
  add_dtype<double>(loops);
  add_dtype<float>(loops);
  add_dtype<BFloat16>(loops);
  add_dtype<Half>(loops);
  add_dtype<std::int64_t>(loops);
  add_dtype<std::int32_t>(loops);
  add_dtype<std::uint8_t>(loops);
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
