#include "functional/compare.hpp"

#include "cpu/loops/fill.hpp"
#include "functional/fingerprint.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

template <CompareOp op, class T>
void compare(void* out, const void* a, const void* b, std::int64_t n) {
  auto* to = static_cast<std::uint8_t*>(out);
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) to[i] = functional::compare<op>(left[i], right[i]);
}

template <CompareOp op>
void add_op(Loops& loops) {
  loops.compare.at(Accumulate::f32, op) = compare<op, float>;
  loops.compare.at(Accumulate::f64, op) = compare<op, double>;
  loops.compare.at(Accumulate::i64, op) = compare<op, std::int64_t>;
  loops.compare_bytes[static_cast<std::size_t>(op)] = compare<op, std::uint8_t>;
}

/// Chooses bits, so that one loop serves every dtype of that size.
template <class T>
void where(void* out, const void* condition, const void* a, const void* b, std::int64_t n) {
  T* to = static_cast<T*>(out);
  const auto* choice = static_cast<const std::uint8_t*>(condition);
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const T x = left[i], y = right[i];
    to[i] = choice[i] ? x : y;
  }
}

template <class T>
std::uint64_t fingerprint(const void* array, std::int64_t begin, std::int64_t end) {
  const T* const elements = static_cast<const T*>(array);
  std::uint64_t sum = 0;  // wraps around
  for (std::int64_t i = begin; i < end; ++i) sum += functional::fingerprint_of(elements[i], i);
  return sum;
}

}  // namespace

void fill_compare(Loops& loops) {
#define LOCKSTEP_COMPARE_OP(name, ...) add_op<CompareOp::name>(loops);
#include "functional/ops.def"
  loops.where[0] = where<std::uint8_t>;
  loops.where[1] = where<std::uint16_t>;
  loops.where[2] = where<std::uint32_t>;
  loops.where[3] = where<std::uint64_t>;
  loops.fingerprint[0] = fingerprint<std::uint8_t>;
  loops.fingerprint[1] = fingerprint<std::uint16_t>;
  loops.fingerprint[2] = fingerprint<std::uint32_t>;
  loops.fingerprint[3] = fingerprint<std::uint64_t>;
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
