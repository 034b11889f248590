#include "comm/hier/partials.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/loops.hpp"

namespace lockstep::comm::hier {
namespace {

// The same bits as a product by 1 / ranks, where that is exact.
template <class A>
void divide(A* values, int ranks, std::int64_t count) {
  if constexpr (std::is_integral_v<A>) {
    for (std::int64_t i = 0; i < count; ++i) values[i] /= static_cast<A>(ranks);
  } else {
    constexpr std::int64_t block = 1024;
    alignas(64) A divisor[block];
    std::ranges::fill(divisor, static_cast<A>(ranks));
    const auto loop =
        cpu_kernels::loops().binary(cpu_kernels::accumulate_of(dtype_of<A>), BinaryOp::div);
    for (std::int64_t i = 0; i < count; i += block)
      loop(values + i, values + i, divisor, std::min(block, count - i), {});
  }
}

std::size_t bytes_of(DType dtype, std::int64_t count) {
  return size_of(dtype) * static_cast<std::size_t>(count);
}

}  // namespace

DType partial_dtype(DType dtype, ReduceKind kind) {
  if (kind == ReduceKind::min || kind == ReduceKind::max) return dtype;
  if (dtype == DType::bf16 || dtype == DType::f16) return DType::f32;
  // Integers wrap alike in any number of bits, until they are divided.
  return is_floating(dtype) || kind != ReduceKind::average ? dtype : DType::i64;
}

ReduceOp inner_reduction(const ReduceOp& reduction) {
  return reduction.kind == ReduceKind::average ? ReduceOp::sum() : reduction;
}

ReduceOp outer_reduction(const ReduceOp& reduction) {
  const bool adds =
      reduction.kind == ReduceKind::average || reduction.kind == ReduceKind::scaled_sum;
  return adds ? ReduceOp::sum() : reduction;
}

void widen(DType dtype, ReduceKind kind, const std::byte* values, std::byte* partials,
           std::int64_t count) {
  if (count == 0) return;
  if (partial_dtype(dtype, kind) == dtype)
    std::memcpy(partials, values, bytes_of(dtype, count));
  else
    cpu_kernels::loops().load[static_cast<std::size_t>(dtype)](partials, values, 1, count);
}

void finish(DType dtype, ReduceKind kind, int ranks, std::byte* partials, std::byte* results,
            std::int64_t count) {
  if (count == 0) return;
  const DType partial = partial_dtype(dtype, kind);
  if (kind == ReduceKind::average) {
    if (partial == DType::f32) divide(reinterpret_cast<float*>(partials), ranks, count);
    if (partial == DType::f64) divide(reinterpret_cast<double*>(partials), ranks, count);
    if (partial == DType::i64) divide(reinterpret_cast<std::int64_t*>(partials), ranks, count);
  }
  if (partial != dtype)
    cpu_kernels::loops().store(cpu_kernels::accumulate_of(dtype), dtype)(results, 1, partials,
                                                                         count);
  else if (results != partials)
    std::memcpy(results, partials, bytes_of(dtype, count));
}

}  // namespace lockstep::comm::hier
