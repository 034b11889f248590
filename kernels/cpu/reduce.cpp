#include "arguments/reduction.hpp"
#include "cpu/reduce_columns.hpp"
#include "cpu/reduce_rows.hpp"

namespace lockstep::cpu_kernels {
namespace {

/// True if the innermost dimension in memory is a kept one, and worth a vector loop.
bool columns_are_inner(const ReducePlan& plan) {
  return plan.kept.inner_stride(1) == 1 && plan.kept.inner() >= 8 &&
         plan.folded.inner_stride(0) != 1;
}

template <class T, class P>
void run(const ReducePlan& plan) {
  if (columns_are_inner(plan))
    reduce_by_columns<T, P>(plan);
  else
    reduce_by_rows<P>(plan);
}

void fill_empty(const ReducePlan& plan) {
  double value = traits(plan.op).of_nothing(plan.in.shape);
  Cursor cursor;
  cursor.seek(plan.kept, 0);
  for (std::int64_t i = 0; i < plan.kept.total; ++i) {
    const auto size = static_cast<std::int64_t>(lockstep::size_of(plan.out.dtype));
    if (!plan.accumulate)
      loops().store(Accumulate::f64, plan.out.dtype)(plan.out.as<char>() + cursor.offset[0] * size,
                                                     1, &value, 1);
    cursor.advance(plan.kept, 1);
  }
}

/// True for the input's own dtype, and, where the op widens, for the one that it is held in.
bool can_hold(ReduceOp op, DType out, DType in) {
  const bool widens = traits(op).widens;
  if (widens && is_accumulate_type(out) && accumulate_of(out) == accumulate_of(in)) return true;
  return out == in && lockstep::size_of(in) > 1;
}

void check(const kernels::ReduceArguments& arguments) {
  const ReduceOp op = arguments.op;
  const ArrayView &out = arguments.out, &in = arguments.in;
  const auto name = traits(op).name;
  LOCKSTEP_CHECK(
      can_hold(op, out.dtype, in.dtype) && loops().reduce_rows(accumulate_of(in.dtype), op),
      Unsupported, name, ": dtype ", in.dtype, " into ", out.dtype,
      " is not offered on device cpu");
  LOCKSTEP_CHECK(!arguments.accumulate || op == ReduceOp::sum, InvalidArgument, name,
                 ": only sum accumulates into its output");
  bool fits = out.rank() == in.rank();
  for (int d = 0; fits && d < in.rank(); ++d)
    fits = out.shape[d] == in.shape[d] || out.shape[d] == 1;
  LOCKSTEP_CHECK(fits, InvalidArgument, name, ": the output's shape ", out.shape,
                 " is not the input's ", in.shape, " with extents of 1");
}

}  // namespace

// Work is split by the size of the operands, never by the number of threads, so the result has the
// same bits at any thread count.
void reduction::reduce(const kernels::ReduceArguments& arguments, StreamRef) {
  check(arguments);
  const ReducePlan plan = make_plan(arguments);
  if (plan.kept.total == 0) return;
  if (plan.folded.total == 0) return fill_empty(plan);
  switch (plan.type) {
    case Accumulate::f32: return run<float, double>(plan);
    case Accumulate::f64: return run<double, double>(plan);
    case Accumulate::i64: return run<std::int64_t, std::int64_t>(plan);
  }
}

}  // namespace lockstep::cpu_kernels
