#include "comm/shm/pair_sum.hpp"

#include <algorithm>

#include "cpu/loops.hpp"

namespace lockstep::comm::shm {
namespace {

constexpr std::int64_t block_elements = 1024;  // what a block needs stays in the L1 cache

// A is the dtype's accumulation type. Other dtypes are first widened into it, and rounded once.
template <class A>
void sum_blocks(DType dtype, bool averages, const std::byte* a, const std::byte* b, std::byte* out,
                std::int64_t count) {
  namespace cpu = lockstep::cpu_kernels;
  const auto& loops = cpu::loops();
  const cpu::Accumulate type = cpu::accumulate_of(dtype);
  const auto add = loops.binary(type, BinaryOp::add), multiply = loops.binary(type, BinaryOp::mul);
  const auto load = loops.load[static_cast<std::size_t>(dtype)];
  const auto store = loops.store(type, dtype);
  const bool is_wide = cpu::is_accumulate_type(dtype);
  alignas(64) A left[block_elements], right[block_elements], halves[block_elements];
  if (averages) std::ranges::fill(halves, A(0.5));
  for (std::int64_t begin = 0; begin < count; begin += block_elements) {
    const std::int64_t size = std::min(block_elements, count - begin);
    const auto place = begin * static_cast<std::int64_t>(size_of(dtype));
    if (!is_wide) {
      load(left, a + place, 1, size);
      load(right, b + place, 1, size);
    }
    void* const sum = is_wide ? static_cast<void*>(out + place) : left;
    add(sum, is_wide ? static_cast<const void*>(a + place) : left,
        is_wide ? static_cast<const void*>(b + place) : right, size, {});
    if (averages) multiply(sum, sum, halves, size, {});
    if (!is_wide) store(out + place, 1, left, size);
  }
}

}  // namespace

bool sum_pair(DType dtype, ReduceKind kind, const std::byte* a, const std::byte* b, std::byte* out,
              std::int64_t count) {
  if (!is_floating(dtype) || (kind != ReduceKind::sum && kind != ReduceKind::average)) return false;
  const bool averages = kind == ReduceKind::average;
  if (dtype == DType::f64)
    sum_blocks<double>(dtype, averages, a, b, out, count);
  else
    sum_blocks<float>(dtype, averages, a, b, out, count);
  return true;
}

}  // namespace lockstep::comm::shm
