#pragma once

#include <cstdint>
#include <type_traits>

#include "arguments/reduction.hpp"
#include "cpu/loop_nest.hpp"
#include "cpu/loops.hpp"
#include "functional/reduction.hpp"

/// @file
/// What both ways to reduce share: by rows (reduce_rows.hpp) and by columns (reduce_columns.hpp).

namespace lockstep::cpu_kernels {

/// Elements that one partial result stands for.
inline constexpr std::int64_t chunk_elements = 65536;

/// A reduction sorted out: which dimensions are kept, and which are folded.
struct ReducePlan {
  ReduceOp op;
  const ArrayView& out;
  const ArrayView& in;
  bool accumulate;
  Accumulate type;
  LoopNest kept;    ///< operands: out, in
  LoopNest folded;  ///< operand: in
};

inline ReducePlan make_plan(const kernels::ReduceArguments& arguments) {
  const ArrayView &out = arguments.out, &in = arguments.in;
  Shape kept = in.shape, folded = in.shape;
  for (int d = 0; d < in.rank(); ++d) (out.shape[d] == in.shape[d] ? folded : kept)[d] = 1;
  return {.op = arguments.op,
          .out = out,
          .in = in,
          .accumulate = arguments.accumulate,
          .type = accumulate_of(in.dtype),
          .kept = make_loop_nest(kept, {&out.strides, &in.strides}),
          .folded = make_loop_nest(folded, {&in.strides})};
}

/// Calls `visit` with the op as a constant.
template <class Visitor>
auto with_op(ReduceOp op, Visitor&& visit) {
  switch (op) {
#define LOCKSTEP_REDUCE_OP(name, ...) \
  case ReduceOp::name:                \
    return visit(std::integral_constant<ReduceOp, ReduceOp::name>{});
#include "functional/ops.def"
  }
  __builtin_unreachable();
}

template <class P>
P identity(ReduceOp op) {
  return with_op(op, [](auto constant) { return functional::reduction_identity<constant(), P>(); });
}

template <class P>
P combine(ReduceOp op, P a, P b) {
  return with_op(op, [a, b](auto constant) {
    P total = a;
    functional::reduction_combine<constant()>(total, b);
    return total;
  });
}

/// Writes n results to consecutive places of the kept nest, from `cursor` on within one row.
template <class P>
void store_results(const ReducePlan& plan, const Cursor& cursor, P* results, std::int64_t n) {
  if (plan.op == ReduceOp::mean)
    for (std::int64_t i = 0; i < n; ++i) results[i] /= static_cast<P>(plan.folded.total);
  constexpr Accumulate type = std::is_same_v<P, double> ? Accumulate::f64 : Accumulate::i64;
  const auto size = static_cast<std::int64_t>(lockstep::size_of(plan.out.dtype));
  char* const to = plan.out.as<char>() + cursor.offset[0] * size;
  const std::int64_t stride = plan.kept.inner_stride(0);
  if (plan.accumulate) {
    const auto load = loops().load[static_cast<std::size_t>(plan.out.dtype)];
    for (std::int64_t i = 0; i < n; ++i) {
      union {
        float f32;
        double f64;
        std::int64_t i64;
      } before;
      load(&before, to + i * stride * size, 1, 1);
      results[i] += static_cast<P>(plan.type == Accumulate::f32   ? static_cast<P>(before.f32)
                                   : plan.type == Accumulate::f64 ? static_cast<P>(before.f64)
                                                                  : static_cast<P>(before.i64));
    }
  }
  loops().store(type, plan.out.dtype)(to, stride, results, n);
}

inline const char* input_at(const ReducePlan& plan, std::int64_t offset) {
  return plan.in.as<const char>() +
         offset * static_cast<std::int64_t>(lockstep::size_of(plan.in.dtype));
}

}  // namespace lockstep::cpu_kernels
