#include "comm/host/fold_partial.hpp"

#include <algorithm>

#include "comm/host/fold.hpp"
#include "comm/host/pieces.hpp"
#include "cpu/loops.hpp"

namespace lockstep::comm::host {
namespace {

// The same bits as a product by 1 / ranks, where `fold` takes that because it is exact.
template <class A>
void divide(std::byte* partial, int ranks, std::int64_t count) {
  auto* const values = reinterpret_cast<A*>(partial);
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

std::int64_t size_in(DType dtype, std::int64_t count) {
  return count * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

DType partial_dtype(DType dtype, ReduceKind kind) {
  if (kind == ReduceKind::min || kind == ReduceKind::max) return dtype;
  if (dtype == DType::bf16 || dtype == DType::f16) return DType::f32;
  // Integers wrap alike in any number of bits, until they are divided.
  return is_floating(dtype) || kind != ReduceKind::average ? dtype : DType::i64;
}

ReduceOp partial_reduction(const ReduceOp& reduction) {
  const bool adds =
      reduction.kind == ReduceKind::average || reduction.kind == ReduceKind::scaled_sum;
  return adds ? ReduceOp::sum() : reduction;
}

void begin_partial(DType dtype, const ReduceOp& reduction, const std::byte* values,
                   std::byte* partial, std::int64_t count) {
  const DType wide = partial_dtype(dtype, reduction.kind);
  if (wide == dtype)
    copy_bytes(partial, values, size_in(dtype, count));
  else if (count > 0)
    cpu_kernels::loops().load[static_cast<std::size_t>(dtype)](partial, values, 1, count);
  if (reduction.kind != ReduceKind::scaled_sum) return;
  const std::byte* const sources[] = {partial};
  fold(wide, ReduceKind::scaled_sum, {sources, {&reduction.factor, 1}}, partial, count);
}

void combine_partial(DType dtype, const ReduceOp& reduction, std::byte* partial,
                     const std::byte* following, std::int64_t count) {
  const std::byte* const sources[] = {partial, following};
  fold(partial_dtype(dtype, reduction.kind), partial_reduction(reduction).kind, {sources, {}},
       partial, count);
}

void finish_partial(DType dtype, const ReduceOp& reduction, int ranks, std::byte* partial,
                    std::byte* results, std::int64_t count) {
  if (count == 0) return;
  const DType wide = partial_dtype(dtype, reduction.kind);
  if (reduction.kind == ReduceKind::average) {
    if (wide == DType::f32) divide<float>(partial, ranks, count);
    if (wide == DType::f64) divide<double>(partial, ranks, count);
    if (wide == DType::i64) divide<std::int64_t>(partial, ranks, count);
  }
  if (wide == dtype)
    copy_bytes(results, partial, size_in(dtype, count));
  else
    cpu_kernels::loops().store(cpu_kernels::accumulate_of(dtype), dtype)(results, 1, partial,
                                                                         count);
}

}  // namespace lockstep::comm::host
