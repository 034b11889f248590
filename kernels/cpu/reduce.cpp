#include "cpu/reduce.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <vector>

#include "cpu/loop_nest.hpp"
#include "cpu/tiles.hpp"
#include "functional/reduction.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::host {
namespace {

/// Elements that one partial result stands for.
constexpr std::int64_t chunk_elements = 65536;

/// A reduction sorted out: which dimensions are kept, and which are folded.
struct Plan {
  ReduceOp op;
  const ArrayView& out;
  const ArrayView& in;
  bool accumulate;
  Accumulate type;
  LoopNest kept;    ///< operands: out, in
  LoopNest folded;  ///< operand: in
};

Plan make_plan(const kernels::ReduceArguments& arguments) {
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
void store_results(const Plan& plan, const Cursor& cursor, P* results, std::int64_t n) {
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

const char* input_at(const Plan& plan, std::int64_t offset) {
  return plan.in.as<const char>() +
         offset * static_cast<std::int64_t>(lockstep::size_of(plan.in.dtype));
}

/// Folds a range of the folded nest for the output at `base` by its innermost rows.
template <class P>
P fold_rows(const Plan& plan, std::int64_t base, std::int64_t begin, std::int64_t end) {
  const auto loop = loops().reduce_row(plan.type, plan.op);
  const auto load = loops().load[static_cast<std::size_t>(plan.in.dtype)];
  const std::int64_t stride = plan.folded.inner_stride(0);
  const bool direct = stride == 1 && is_accumulate_type(plan.in.dtype);
  alignas(64) std::array<double, tile_elements> tile;
  P partial = identity<P>(plan.op);
  Cursor cursor;
  cursor.seek(plan.folded, begin);
  for (std::int64_t at = begin; at < end;) {
    std::int64_t n = std::min(end - at, cursor.row_left(plan.folded));
    const char* from = input_at(plan, base + cursor.offset[0]);
    if (direct) {
      loop(&partial, from, n);
    } else {
      n = std::min(n, tile_elements);
      load(tile.data(), from, stride, n);
      loop(&partial, tile.data(), n);
    }
    cursor.advance(plan.folded, n);
    at += n;
  }
  return partial;
}

/// The innermost dimension is folded: each output is a sum of rows, in chunks of fixed size.
template <class P>
void reduce_by_rows(const Plan& plan) {
  const std::int64_t outputs = plan.kept.total, folded = plan.folded.total;
  const std::int64_t chunks = (folded + chunk_elements - 1) / chunk_elements;
  std::vector<P> partials(chunks > 1 ? static_cast<std::size_t>(outputs * chunks) : 0);
  const std::int64_t grain =
      std::max<std::int64_t>(1, parallel_grain / std::min(folded, chunk_elements));
  parallel_for(outputs * chunks, grain, [&](std::int64_t begin, std::int64_t end) {
    Cursor cursor;
    for (std::int64_t task = begin; task < end; ++task) {
      if (task == begin || task % chunks == 0) cursor.seek(plan.kept, task / chunks);
      const std::int64_t first = task % chunks * chunk_elements;
      P partial =
          fold_rows<P>(plan, cursor.offset[1], first, std::min(folded, first + chunk_elements));
      if (chunks > 1)
        partials[static_cast<std::size_t>(task)] = partial;
      else
        store_results(plan, cursor, &partial, 1);
    }
  });
  if (chunks == 1) return;
  Cursor cursor;
  cursor.seek(plan.kept, 0);
  for (std::int64_t output = 0; output < outputs; ++output) {
    P total = identity<P>(plan.op);
    for (std::int64_t c = 0; c < chunks; ++c)
      total = combine(plan.op, total, partials[static_cast<std::size_t>(output * chunks + c)]);
    store_results(plan, cursor, &total, 1);
    cursor.advance(plan.kept, 1);
  }
}

/// One band of neighbouring outputs whose inputs are neighbours too.
template <class T>
class ColumnFold {
 public:
  explicit ColumnFold(const Plan& plan)
      : plan_(plan),
        loop_(loops().reduce_columns(plan.type, plan.op)),
        load_(loops().load[static_cast<std::size_t>(plan.in.dtype)]),
        direct_(is_accumulate_type(plan.in.dtype)) {}

  /// Combines rows [begin, end) of the folded nest into n partials for the outputs from `base` on.
  void fold(T* partial, std::int64_t base, std::int64_t n, std::int64_t begin, std::int64_t end) {
    Cursor cursor;
    cursor.seek(plan_.folded, begin);
    for (std::int64_t at = begin; at < end;) {
      std::int64_t rows = std::min(end - at, cursor.row_left(plan_.folded));
      const std::int64_t stride = plan_.folded.inner_stride(0);
      if (direct_) {
        loop_(partial, input_at(plan_, base + cursor.offset[0]), stride, rows, n);
      } else {
        rows = std::min<std::int64_t>(rows, 4);
        for (std::int64_t r = 0; r < rows; ++r)
          load_(tile_.data() + r * n, input_at(plan_, base + cursor.offset[0] + r * stride), 1, n);
        loop_(partial, tile_.data(), n, rows, n);
      }
      cursor.advance(plan_.folded, rows);
      at += rows;
    }
  }

 private:
  const Plan& plan_;
  ReduceColumnsLoop loop_;
  LoadLoop load_;
  bool direct_;
  alignas(64) std::array<T, 4 * tile_elements> tile_;
};

/// The innermost dimension is kept: rows are added to each other, band of columns by band, each
/// band in chunks of rows of fixed size. Partials of a chunk are T, their totals P.
template <class T, class P>
void reduce_by_columns(const Plan& plan) {
  const std::int64_t inner = plan.kept.inner(), rows = plan.folded.total;
  const std::int64_t width = std::min(inner, tile_elements);
  const std::int64_t bands = (inner + width - 1) / width, outer = plan.kept.total / inner;
  const std::int64_t chunk_rows = std::max<std::int64_t>(64, chunk_elements / width);
  const std::int64_t chunks = (rows + chunk_rows - 1) / chunk_rows;
  std::vector<T> partials(static_cast<std::size_t>(outer * bands * chunks * width),
                          identity<T>(plan.op));
  const auto partial_of = [&](std::int64_t band, std::int64_t chunk) {
    return partials.data() + (band * chunks + chunk) * width;
  };
  const auto grain =
      std::max<std::int64_t>(1, parallel_grain / (std::min(rows, chunk_rows) * width));
  // Chunk by chunk, and band by band within: neighbours in memory are folded one after another.
  parallel_for(outer * chunks * bands, grain, [&](std::int64_t begin, std::int64_t end) {
    ColumnFold<T> columns(plan);
    Cursor cursor;
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t band = task % bands, chunk = task / bands % chunks;
      const std::int64_t block = task / bands / chunks, first = chunk * chunk_rows;
      cursor.seek(plan.kept, block * inner + band * width);
      columns.fold(partial_of(block * bands + band, chunk), cursor.offset[1],
                   std::min(width, inner - band * width), first,
                   std::min(rows, first + chunk_rows));
    }
  });
  parallel_for(outer * bands, std::max<std::int64_t>(1, parallel_grain / (chunks * width)),
               [&](std::int64_t begin, std::int64_t end) {
                 std::array<P, tile_elements> totals;
                 Cursor cursor;
                 for (std::int64_t band = begin; band < end; ++band) {
                   const std::int64_t at = band % bands * width, n = std::min(width, inner - at);
                   std::fill_n(totals.begin(), n, identity<P>(plan.op));
                   for (std::int64_t c = 0; c < chunks; ++c)
                     for (std::int64_t i = 0; i < n; ++i)
                       totals[static_cast<std::size_t>(i)] =
                           combine(plan.op, totals[static_cast<std::size_t>(i)],
                                   static_cast<P>(partial_of(band, c)[i]));
                   cursor.seek(plan.kept, band / bands * inner + at);
                   store_results(plan, cursor, totals.data(), n);
                 }
               });
}

/// True if the innermost dimension in memory is a kept one, and worth a vector loop.
bool columns_are_inner(const Plan& plan) {
  return plan.kept.inner_stride(1) == 1 && plan.kept.inner() >= 8 &&
         plan.folded.inner_stride(0) != 1;
}

template <class T, class P>
void run(const Plan& plan) {
  if (columns_are_inner(plan))
    reduce_by_columns<T, P>(plan);
  else
    reduce_by_rows<P>(plan);
}

void fill_empty(const Plan& plan) {
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
      can_hold(op, out.dtype, in.dtype) && loops().reduce_row(accumulate_of(in.dtype), op),
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

void reduce(const kernels::ReduceArguments& arguments, StreamRef) {
  check(arguments);
  const Plan plan = make_plan(arguments);
  if (plan.kept.total == 0) return;
  if (plan.folded.total == 0) return fill_empty(plan);
  switch (plan.type) {
    case Accumulate::f32: return run<float, double>(plan);
    case Accumulate::f64: return run<double, double>(plan);
    case Accumulate::i64: return run<std::int64_t, std::int64_t>(plan);
  }
}

}  // namespace lockstep::host
