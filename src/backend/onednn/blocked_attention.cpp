#include <algorithm>
#include <cmath>

#include "arguments/attention.hpp"
#include "backend/onednn/attention_blocks.hpp"
#include "backend/onednn/bf16_attention.hpp"
#include "backend/onednn/families.hpp"
#include "cpu/attention_kernels.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::backend {
namespace {

using cpu_kernels::ScoreBlock;
using cpu_kernels::StridedMatrix;
using cpu_kernels::TileProduct;
using kernels::AttentionArguments;
using kernels::AttentionBackwardArguments;
using kernels::AttentionOptions;

/// One call: its arrays, and the steps that forward and backward share.
struct AttentionCall {
  const ArrayView &q, &k, &v, &mask;
  AttentionOptions options;
  Extents extents;

  QueryBlock block(std::int64_t n, std::int64_t h, std::int64_t first) const {
    return query_block(extents, options.causal, n, h, first);
  }
  /// scores [keys, queries] = keys @ (scale * queries)^T, masked.
  void score(const Workspace& w, const QueryBlock& b) const {
    const auto& kernel = cpu_kernels::attention_loops();
    w.query.load(q, b.n, b.h, b.first, b.count, static_cast<float>(options.scale));
    kernel.transpose(w.query_t.data, w.query.data, w.query.rows, w.query.columns);
    kernel.multiply({.c = w.scores.data,
                     .c_row = w.scores.columns,
                     .a = w.keys.by_rows(),
                     .b = w.query_t.data,
                     .b_row = w.query_t.columns,
                     .rows = b.padded_keys,
                     .columns = w.scores.columns,
                     .depth = extents.padded_depth});
    apply_mask(w.scores, b, mask, options.causal);
  }
  void load_group(const Workspace& w, std::int64_t n, std::int64_t g) const {
    w.keys.load(k, n, g, 0, extents.keys);
    w.values.load(v, n, g, 0, extents.keys);
  }
};

/// c (+)= scores^T @ b: sums over keys for each query.
TileProduct over_keys(const Block& c, const Block& scores, const Block& b, std::int64_t keys) {
  return {.c = c.data,
          .c_row = c.columns,
          .a = {scores.data, 1, scores.columns},
          .b = b.data,
          .b_row = b.columns,
          .rows = c.rows,
          .columns = c.columns,
          .depth = keys};
}

/// c += scores @ b: sums over the block's queries for each key.
TileProduct over_queries(const Block& c, const Block& scores, const Block& b, const QueryBlock& q) {
  return {.c = c.data,
          .c_row = c.columns,
          .a = scores.by_rows(),
          .b = b.data,
          .b_row = b.columns,
          .rows = q.padded_keys,
          .columns = c.columns,
          .depth = q.count,
          .accumulate = true};
}

void forward_head(const AttentionCall& call, const ArrayView& out, const ArrayView& lse,
                  std::int64_t n, std::int64_t h) {
  const auto& kernel = cpu_kernels::attention_loops();
  const Extents& e = call.extents;
  const Workspace w(e, false);
  call.load_group(w, n, h / e.heads_per_group);
  float* const totals = lse.as<float>() + (n * call.q.shape[1] + h) * e.queries;
  for (std::int64_t first = 0; first < e.queries; first += e.block) {
    const QueryBlock b = call.block(n, h, first);
    call.score(w, b);
    kernel.softmax({w.scores.data, b.keys, w.scores.columns}, w.largest, w.sum);
    kernel.multiply(over_keys(w.result, w.scores, w.values, b.keys));
    for (std::int64_t t = 0; t < b.count; ++t) {
      const float inverse = w.sum[t] > 0 ? 1 / w.sum[t] : 0.0f;
      for (std::int64_t d = 0; d < w.result.columns; ++d) w.result.row(t)[d] *= inverse;
      totals[first + t] = w.largest[t] + std::log(w.sum[t]);
    }
    w.result.store(out, n, h, first, b.count);
  }
}

/// Gradients of one block of queries; those of keys and values are added up in the workspace.
void backward_block(const AttentionCall& call, const AttentionBackwardArguments& g,
                    const Workspace& w, const QueryBlock& b) {
  const auto& kernel = cpu_kernels::attention_loops();
  load_totals(w.sum, g.lse, b, call.extents);
  call.score(w, b);
  kernel.probabilities({w.scores.data, b.keys, w.scores.columns}, w.sum);
  w.dresult.load(g.dout, b.n, b.h, b.first, b.count);
  kernel.transpose(w.dresult_t.data, w.dresult.data, w.dresult.rows, w.dresult.columns);
  kernel.multiply({.c = w.gradients.data,
                   .c_row = w.gradients.columns,
                   .a = w.values.by_rows(),
                   .b = w.dresult_t.data,
                   .b_row = w.dresult_t.columns,
                   .rows = b.padded_keys,
                   .columns = w.gradients.columns,
                   .depth = w.values.columns});
  kernel.score_gradients({w.gradients.data, b.keys, w.gradients.columns}, w.scores.data);
  // Rows that only fill up the last register tile may belong to keys that these queries do not see.
  for (const Block* scores : {&w.scores, &w.gradients})
    std::fill(scores->row(b.keys), scores->row(b.padded_keys), 0.0f);
  kernel.multiply(over_queries(w.dvalues, w.scores, w.dresult, b));
  kernel.multiply(over_queries(w.dkeys, w.gradients, w.query, b));
  kernel.multiply(over_keys(w.dquery, w.gradients, w.keys, b.keys));
  const auto scale = static_cast<float>(call.options.scale);
  for (std::int64_t i = 0; i < b.count * w.dquery.columns; ++i) w.dquery.data[i] *= scale;
  w.dquery.store(g.dq, b.n, b.h, b.first, b.count);
}

void backward_group(const AttentionCall& call, const AttentionBackwardArguments& g, std::int64_t n,
                    std::int64_t group) {
  const Extents& e = call.extents;
  const Workspace w(e, true);
  call.load_group(w, n, group);
  w.dkeys.clear();
  w.dvalues.clear();
  for (std::int64_t h = group * e.heads_per_group; h < (group + 1) * e.heads_per_group; ++h)
    for (std::int64_t first = 0; first < e.queries; first += e.block)
      backward_block(call, g, w, call.block(n, h, first));
  w.dkeys.store(g.dk, n, group, 0, e.keys);
  w.dvalues.store(g.dv, n, group, 0, e.keys);
}

bool fits_blocks(const ArrayView& q, const ArrayView& k, const ArrayView& v) {
  return q.dtype != DType::f64 && is_floating(q.dtype) && q.rank() == 4 && k.rank() == 4 &&
         v.rank() == 4 && k.shape[1] > 0 && q.shape[1] % k.shape[1] == 0 && q.numel() > 0 &&
         k.numel() > 0 && v.numel() > 0;
}

// Attention in blocks of queries, whose scores against all keys are never in memory for more than
// one block a thread; blocks beyond the causal diagonal are skipped, and backward computes the
// scores again (Dao et al. 2022). Accumulates in f32; bf16 is converted unless bf16_attention takes
// it. A head (in backward, a group of heads that share keys) is one thread's work, so results do
// not depend on the number of threads.

void attention_forward(const AttentionArguments& a, StreamRef stream) {
  if (!fits_blocks(a.q, a.k, a.v)) return cpu().attention.forward(a, stream);
  if (fits_bf16(a)) return bf16_attention(a);
  const AttentionCall call{a.q, a.k, a.v, a.mask, a.options, Extents(a.q, a.k, a.v)};
  const std::int64_t heads = a.q.shape[1];
  parallel_for(a.q.shape[0] * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      forward_head(call, a.out, a.lse, i / heads, i % heads);
  });
}

void attention_backward(const AttentionBackwardArguments& a, StreamRef stream) {
  if (!fits_blocks(a.q, a.k, a.v)) return cpu().attention.backward(a, stream);
  if (fits_bf16(a)) return bf16_attention(a);
  const AttentionCall call{a.q, a.k, a.v, a.mask, a.options, Extents(a.q, a.k, a.v)};
  const std::int64_t groups = a.k.shape[1];
  parallel_for(a.q.shape[0] * groups, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) backward_group(call, a, i / groups, i % groups);
  });
}

}  // namespace

kernels::AttentionKernels blocked_attention() {
  return {.forward = attention_forward, .backward = attention_backward};
}

}  // namespace lockstep::backend
