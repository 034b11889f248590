#include "comm/host/fold_partial.hpp"

#include "comm/host/fold_operations.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm::host {
namespace {

template <class Visitor>
void with_type(const Operation& operation, Visitor visit) {
  dispatch_numeric(operation.dtype, "collective reduction", visit);
}

template <class A>
void combine(ReduceKind kind, A* partial, const A* following, std::int64_t count) {
  switch (kind) {
    case ReduceKind::min: return combine_block(partial, partial, following, count, smaller);
    case ReduceKind::max: return combine_block(partial, partial, following, count, larger);
    case ReduceKind::product: return combine_block(partial, partial, following, count, multiply);
    default: return combine_block(partial, partial, following, count, add);
  }
}

// In blocks, so that the means' operand is no longer than one.
template <class A>
void average(int ranks, A* sums, std::int64_t count) {
  if constexpr (std::is_integral_v<A>) {
    for (std::int64_t i = 0; i < count; ++i) sums[i] /= static_cast<A>(ranks);
  } else {
    const Mean<A> mean(static_cast<std::size_t>(ranks));
    for (std::int64_t begin = 0; begin < count; begin += block_elements)
      mean(sums + begin, sums + begin, std::min(block_elements, count - begin));
  }
}

}  // namespace

std::int64_t partial_bytes(DType dtype, std::int64_t count) {
  return count * static_cast<std::int64_t>(cpu_kernels::size_of(cpu_kernels::accumulate_of(dtype)));
}

void begin_partial(const Operation& operation, std::byte* partial) {
  with_type(operation, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = Accumulator<T>;
    auto* const values = reinterpret_cast<A*>(partial);
    cpu_kernels::loops().load[static_cast<std::size_t>(dtype_of<T>)](values, operation.input, 1,
                                                                     operation.count);
    if (operation.reduction.kind != ReduceKind::scaled_sum) return;
    if constexpr (is_floating_type<T>) {
      const A factor = static_cast<A>(operation.reduction.factor);
      for (std::int64_t i = 0; i < operation.count; ++i) values[i] *= factor;
    } else {
      LOCKSTEP_THROW(Unsupported, "scaled_sum needs a floating dtype, not ", dtype_of<T>);
    }
  });
}

void combine_partial(const Operation& operation, std::byte* partial, const std::byte* following) {
  with_type(operation, [&](auto tag) {
    using A = Accumulator<typename decltype(tag)::type>;
    combine(operation.reduction.kind, reinterpret_cast<A*>(partial),
            reinterpret_cast<const A*>(following), operation.count);
  });
}

void finish_partial(const Operation& operation, int ranks, std::byte* partial, std::byte* out) {
  with_type(operation, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = Accumulator<T>;
    auto* const sums = reinterpret_cast<A*>(partial);
    if (operation.reduction.kind == ReduceKind::average) average(ranks, sums, operation.count);
    cpu_kernels::loops().store(cpu_kernels::accumulate_of(dtype_of<T>), dtype_of<T>)(
        out, 1, sums, operation.count);
  });
}

}  // namespace lockstep::comm::host
