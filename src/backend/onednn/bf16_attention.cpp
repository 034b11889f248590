#include "backend/onednn/bf16_attention.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "backend/onednn/attention_blocks.hpp"
#include "cpu/attention_kernels.hpp"
#include "cpu/bf16_attention.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::backend {
namespace {

using cpu_kernels::Bf16AttentionLoops;
using cpu_kernels::Pair;
using cpu_kernels::pair_columns;
using cpu_kernels::pair_rows;
using cpu_kernels::PairProduct;
using cpu_kernels::PairScores;
using kernels::AttentionArguments;
using kernels::AttentionBackwardArguments;
using kernels::AttentionOptions;

/// Queries of a block: as few as a tile has, so that least is computed of what is hidden.
constexpr std::int64_t query_block_size = pair_columns;

const Bf16AttentionLoops& loops() { return *cpu_kernels::bf16_attention_loops(); }

/// A matrix of pairs, [rows, columns].
struct Pairs {
  Pair* data;
  std::int64_t rows, columns;
};

/// Where row `t` of a head starts.
BFloat16* row_of(const ArrayView& view, std::int64_t n, std::int64_t h, std::int64_t t) {
  return view.as<BFloat16>() + n * view.strides[0] + h * view.strides[1] + t * view.strides[2];
}

/// Reads rows [first, first + count) of a head, filled up with zeros: [rows, 2 * columns].
void load(const Pairs& to, const ArrayView& view, std::int64_t n, std::int64_t h,
          std::int64_t first, std::int64_t count) {
  loops().copy_rows(to.data, 2 * to.columns, row_of(view, n, h, first), view.strides[2],
                    view.shape[3], count);
  std::fill(to.data + count * to.columns, to.data + to.rows * to.columns, Pair{0});
}

/// Writes rows [first, first + count) of a head.
void store(const Block& from, const ArrayView& view, std::int64_t n, std::int64_t h,
           std::int64_t first, std::int64_t count) {
  for (std::int64_t t = 0; t < count; ++t)
    loops().round(row_of(view, n, h, first + t), from.row(t), 1, view.shape[3]);
}

/// to [columns, rows]: pairs in rows become those of the transpose, whose rows they join.
void transpose(const Pairs& to, const Pairs& from) {
  cpu_kernels::attention_loops().transpose(reinterpret_cast<float*>(to.data),
                                           reinterpret_cast<const float*>(from.data), from.rows,
                                           from.columns);
}

void interleave(const Pairs& to, const Pairs& from) {
  loops().interleave(to.data, from.data, from.rows, 2 * from.columns);
}

/// The arrays that one thread works in. `_t`: transposed; `_2`: each two rows interleaved.
struct Bf16Workspace {
  Pairs keys, values, query, query_t, p;                           // both ways
  Pairs values_2;                                                  // forward
  Pairs keys_2, query_2, dresult, dresult_t, dresult_2, ds, ds_2;  // backward
  Block scores, result, dkeys, dvalues, dquery, dp;
  float *largest, *sum;

  Bf16Workspace(const Extents& e, bool backward) {
    const std::int64_t rows = rounded_up(e.padded_keys, 2), half = rows / 2;
    keys = {nullptr, rows, e.padded_depth / 2};
    values = {nullptr, rows, e.padded_width / 2};
    query = {nullptr, e.block, e.padded_depth / 2};
    query_t = {nullptr, e.padded_depth / 2, e.block};
    p = {nullptr, half, e.block};  // or as many in rows, [keys, queries / 2]
    values_2 = {nullptr, half, e.padded_width};
    keys_2 = {nullptr, half, e.padded_depth};
    query_2 = {nullptr, e.block / 2, e.padded_depth};
    dresult = {nullptr, e.block, e.padded_width / 2};
    dresult_t = {nullptr, e.padded_width / 2, e.block};
    dresult_2 = {nullptr, e.block / 2, e.padded_width};
    ds = ds_2 = p;
    scores = dp = {nullptr, rows, e.block};
    result = {nullptr, e.block, e.padded_width};
    dkeys = {nullptr, rows, e.padded_depth};
    dvalues = {nullptr, rows, e.padded_width};
    dquery = {nullptr, e.block, e.padded_depth};
    Pairs* const forward_pairs[] = {&keys, &values, &query, &query_t, &p, &values_2};
    Pairs* const backward_pairs[] = {&keys,    &values,  &query,     &query_t,   &p,  &keys_2,
                                     &query_2, &dresult, &dresult_t, &dresult_2, &ds, &ds_2};
    Block* const forward_blocks[] = {&scores, &result};
    Block* const backward_blocks[] = {&scores, &dkeys, &dvalues, &dquery, &dp};
    if (backward)
      place(e, backward_pairs, backward_blocks);
    else
      place(e, forward_pairs, forward_blocks);
  }

 private:
  /// Elements of either kind have four bytes.
  static_assert(sizeof(Pair) == sizeof(float));
  template <class PairList, class BlockList>
  void place(const Extents& e, const PairList& pairs, const BlockList& blocks) {
    std::int64_t total = 2 * e.block;
    for (const Pairs* each : pairs) total += each->rows * each->columns;
    for (const Block* each : blocks) total += each->rows * each->columns;
    static thread_local cpu_kernels::Scratch scratch;
    float* next = scratch.get<float>(static_cast<std::size_t>(total));
    for (Pairs* each : pairs) {
      each->data = reinterpret_cast<Pair*>(next);
      next += each->rows * each->columns;
    }
    for (Block* each : blocks) {
      each->data = next;
      next += each->rows * each->columns;
    }
    largest = next;
    sum = next + e.block;
  }
};

/// c = scale * a @ b over the columns of a, whose pairs are read as they lie.
PairProduct pairs_over_columns(const Block& c, const Pairs& a, const Pairs& b, std::int64_t rows) {
  return {.c = c.data,
          .c_row = c.columns,
          .a = a.data,
          .a_row = a.columns,
          .a_column = 1,
          .b = b.data,
          .b_row = b.columns,
          .rows = rows,
          .columns = c.columns,
          .depth = a.columns};
}

/// c = a^T @ b over keys, of which each two are interleaved in a and b.
PairProduct pairs_over_keys(const Block& c, const Pairs& a, const Pairs& b, std::int64_t keys) {
  return {.c = c.data,
          .c_row = c.columns,
          .a = a.data,
          .a_row = 1,
          .a_column = a.columns,
          .b = b.data,
          .b_row = b.columns,
          .rows = c.rows,
          .columns = c.columns,
          .depth = (keys + 1) / 2};
}

/// c += a @ b over the block's queries; a is [keys, queries] in rows.
PairProduct pairs_over_queries(const Block& c, const Pairs& a, const Pairs& b,
                               const QueryBlock& block) {
  PairProduct product =
      pairs_over_columns(c, {a.data, block.padded_keys, a.columns / 2}, b, block.padded_keys);
  product.depth = (block.count + 1) / 2;
  product.accumulate = true;
  return product;
}

/// One call: its arrays, and the steps that forward and backward share.
struct Bf16AttentionCall {
  const ArrayView &q, &k, &v, &mask;
  AttentionOptions options;
  Extents extents;

  template <class Arguments>
  explicit Bf16AttentionCall(const Arguments& a)
      : q(a.q),
        k(a.k),
        v(a.v),
        mask(a.mask),
        options(a.options),
        extents(a.q, a.k, a.v, query_block_size, pair_columns, pair_rows) {}
  QueryBlock block(std::int64_t n, std::int64_t h, std::int64_t first) const {
    return query_block(extents, options.causal, n, h, first);
  }
  float scale() const { return static_cast<float>(options.scale); }
  void load_group(const Bf16Workspace& w, std::int64_t n, std::int64_t g) const {
    load(w.keys, k, n, g, 0, extents.keys);
    load(w.values, v, n, g, 0, extents.keys);
  }
  /// scores [keys, queries] = scale * keys @ queries^T, masked.
  void score(const Bf16Workspace& w, const QueryBlock& b) const {
    load(w.query, q, b.n, b.h, b.first, b.count);
    transpose(w.query_t, w.query);
    PairProduct product = pairs_over_columns(w.scores, w.keys, w.query_t, b.padded_keys);
    product.scale = scale();
    loops().multiply(product);
    apply_mask(w.scores, b, mask, options.causal);
  }
};

void bf16_forward_head(const Bf16AttentionCall& call, const ArrayView& out, const ArrayView& lse,
                       std::int64_t n, std::int64_t h) {
  const Extents& e = call.extents;
  const Bf16Workspace w(e, false);
  call.load_group(w, n, h / e.heads_per_group);
  interleave(w.values_2, w.values);
  float* const totals = lse.as<float>() + (n * call.q.shape[1] + h) * e.queries;
  for (std::int64_t first = 0; first < e.queries; first += e.block) {
    const QueryBlock b = call.block(n, h, first);
    call.score(w, b);
    loops().softmax(w.p.data, {w.scores.data, b.keys, w.scores.columns}, w.largest, w.sum);
    loops().multiply(pairs_over_keys(w.result, w.p, w.values_2, b.keys));
    for (std::int64_t t = 0; t < b.count; ++t) {
      const float inverse = w.sum[t] > 0 ? 1 / w.sum[t] : 0.0f;
      loops().round(row_of(out, n, h, first + t), w.result.row(t), inverse, out.shape[3]);
      totals[first + t] = w.largest[t] + std::log(w.sum[t]);
    }
  }
}

/// Gradients of one block of queries; those of keys and values are added up in the workspace.
void bf16_backward_block(const Bf16AttentionCall& call, const AttentionBackwardArguments& g,
                         const Bf16Workspace& w, const QueryBlock& b) {
  load_totals(w.sum, g.lse, b, call.extents);
  call.score(w, b);
  interleave(w.query_2, w.query);
  load(w.dresult, g.dout, b.n, b.h, b.first, b.count);
  transpose(w.dresult_t, w.dresult);
  interleave(w.dresult_2, w.dresult);
  loops().multiply(pairs_over_columns(w.dp, w.values, w.dresult_t, b.padded_keys));
  loops().score_gradients(w.p.data, w.ds.data, w.ds_2.data,
                          {w.scores.data, b.keys, w.scores.columns}, w.dp.data, w.sum);
  loops().multiply(pairs_over_queries(w.dvalues, w.p, w.dresult_2, b));
  PairProduct dkeys = pairs_over_queries(w.dkeys, w.ds, w.query_2, b);
  PairProduct dquery = pairs_over_keys(w.dquery, w.ds_2, w.keys_2, b.keys);
  dkeys.scale = dquery.scale = call.scale();
  loops().multiply(dkeys);
  loops().multiply(dquery);
  store(w.dquery, g.dq, b.n, b.h, b.first, b.count);
}

void bf16_backward_group(const Bf16AttentionCall& call, const AttentionBackwardArguments& g,
                         std::int64_t n, std::int64_t group) {
  const Extents& e = call.extents;
  const Bf16Workspace w(e, true);
  call.load_group(w, n, group);
  interleave(w.keys_2, w.keys);
  w.dkeys.clear();
  w.dvalues.clear();
  for (std::int64_t h = group * e.heads_per_group; h < (group + 1) * e.heads_per_group; ++h)
    for (std::int64_t first = 0; first < e.queries; first += e.block)
      bf16_backward_block(call, g, w, call.block(n, h, first));
  store(w.dkeys, g.dk, n, group, 0, e.keys);
  store(w.dvalues, g.dv, n, group, 0, e.keys);
}

/// Rows of bf16 without gaps.
bool readable(std::initializer_list<const ArrayView*> views) {
  return cpu_kernels::bf16_attention_loops() &&
         std::ranges::all_of(views, [](const ArrayView* view) {
           return view->dtype == DType::bf16 && (view->strides[3] == 1 || view->shape[3] == 1);
         });
}

}  // namespace

bool fits_bf16(const AttentionArguments& a) { return readable({&a.q, &a.k, &a.v, &a.out}); }

bool fits_bf16(const AttentionBackwardArguments& a) {
  return readable({&a.q, &a.k, &a.v, &a.dout, &a.dq, &a.dk, &a.dv});
}

void bf16_attention(const AttentionArguments& a) {
  const Bf16AttentionCall call(a);
  const std::int64_t heads = a.q.shape[1];
  parallel_for(a.q.shape[0] * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      bf16_forward_head(call, a.out, a.lse, i / heads, i % heads);
  });
}

void bf16_attention(const AttentionBackwardArguments& a) {
  const Bf16AttentionCall call(a);
  const std::int64_t groups = a.k.shape[1];
  parallel_for(a.q.shape[0] * groups, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) bf16_backward_group(call, a, i / groups, i % groups);
  });
}

}  // namespace lockstep::backend
