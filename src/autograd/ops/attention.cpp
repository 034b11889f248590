#include "lockstep/autograd/ops/attention.hpp"

#include <array>
#include <cmath>
#include <utility>

#include "autograd/ops/attention_scores.hpp"
#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "autograd/ops/heads.hpp"
#include "autograd/ops/recorded.hpp"

namespace lockstep {

LOCKSTEP_OP(scaled_dot_product_attention, floating, lower_precision, same)
LOCKSTEP_OP(self_attention, floating, lower_precision, same)

namespace {

using namespace autograd;

/// True if the rows of q, k and v are those of one product, [N, T, queries | keys | values].
bool lie_side_by_side(const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::int64_t queries = q.size(1) * q.size(3), keys = k.size(1) * k.size(3);
  const std::int64_t row = queries + keys + v.size(1) * v.size(3), time = q.size(2);
  const auto is_part = [&](const Tensor& x, std::int64_t first) {
    const auto bytes = first * static_cast<std::int64_t>(size_of(q.dtype()));
    return x.size(2) == time && x.strides() == Strides{time * row, x.size(3), row, 1} &&
           x.impl().storage == q.impl().storage &&
           x.data_ptr() == static_cast<std::byte*>(q.data_ptr()) + bytes;
  };
  return is_part(q, 0) && is_part(k, queries) && is_part(v, queries + keys);
}

/// Arrays for the gradients of q, k and v: where these are parts of one array, parts of one, which
/// then needs no copies to come together.
std::array<Tensor, 3> empty_gradients(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (!lie_side_by_side(q, k, v))
    return {empty_heads(q.shape(), q.options()), empty_heads(k.shape(), q.options()),
            empty_heads(v.shape(), q.options())};
  const std::int64_t row = q.strides()[2];
  const Tensor memory = empty({q.size(0), q.size(2), row}, q.options());
  std::int64_t at = 0;
  const auto part = [&](const Tensor& x) {
    const std::int64_t first = at, heads = x.size(1), width = x.size(3);
    at += heads * width;
    return memory.slice(2, first, at).reshape({x.size(0), x.size(2), heads, width}).transpose(1, 2);
  };
  Tensor dq = part(q), dk = part(k), dv = part(v);
  return {std::move(dq), std::move(dk), std::move(dv)};
}

/// What attention reads: heads, and a mask over all scores or none.
struct AttentionOperands {
  Tensor q, k, v, mask;
  kernels::AttentionOptions options;
};

AttentionOperands operands_of(std::string_view op, const Tensor& q, const Tensor& k,
                              const Tensor& v, const AttentionOptions& options) {
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
  const Shape scores{q.size(0), q.size(1), q.size(2), k.size(2)};
  return {.q = q,
          .k = k,
          .v = v,
          .mask = expanded_mask(op, q, scores, options.mask),
          .options = {.scale = scale, .causal = options.is_causal}};
}

/// @return what backward needs of the scores.
Tensor attend(const AttentionOperands& of, const Tensor& out) {
  const Tensor lse = empty({of.q.size(0), of.q.size(1), of.q.size(2)},
                           {statistics_dtype(of.q.dtype()), of.q.device()});
  backend_of(of.q).attention.forward({.out = out.view(),
                                      .lse = lse.view(),
                                      .q = of.q.view(),
                                      .k = of.k.view(),
                                      .v = of.v.view(),
                                      .mask = view_or_absent(of.mask),
                                      .options = of.options},
                                     stream_of(of.q));
  return lse;
}

/// What forward gave, and its gradient.
struct Result {
  Tensor out, lse, dout;
};

/// Writes the gradients of queries, keys and values.
void attend_backward(const AttentionOperands& of, const Result& result,
                     const std::array<Tensor, 3>& gradients) {
  if (result.dout.numel() == 0) {  // not all kernels write then
    for (Tensor gradient : gradients) gradient.zero_();
    return;
  }
  backend_of(of.q).attention.backward({.dq = gradients[0].view(),
                                       .dk = gradients[1].view(),
                                       .dv = gradients[2].view(),
                                       .dout = result.dout.view(),
                                       .q = of.q.view(),
                                       .k = of.k.view(),
                                       .v = of.v.view(),
                                       .out = result.out.view(),
                                       .lse = result.lse.view(),
                                       .mask = view_or_absent(of.mask),
                                       .options = of.options},
                                      stream_of(of.q));
}

/// What was asked for, of what kernels were given.
AttentionOptions given(const kernels::AttentionOptions& options, const Tensor& mask) {
  return {.mask = mask, .is_causal = options.causal, .scale = options.scale};
}

/// Heads of [N, T, features], which lie side by side.
Tensor split_heads(const Tensor& x, std::int64_t heads) {
  return x.reshape({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

/// Queries, keys and values of [N, T, 3 * features].
std::array<Tensor, 3> split_packed(const Tensor& packed, std::int64_t heads) {
  const std::int64_t features = packed.size(2) / 3;
  const auto part = [&](std::int64_t i) {
    return split_heads(packed.slice(2, i * features, (i + 1) * features), heads);
  };
  return {part(0), part(1), part(2)};
}

void check_packed(const Tensor& qkv, std::int64_t heads) {
  LOCKSTEP_CHECK(heads > 0 && qkv.dim() == 3 && qkv.size(2) > 0 && qkv.size(2) % (3 * heads) == 0,
                 InvalidArgument, ops::self_attention.name, ": qkv of shape ", qkv.shape(), " for ",
                 heads, " heads; expected [N, T, 3 * features], features a multiple of the heads");
}

void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  const bool ranks = q.dim() == 4 && k.dim() == 4 && v.dim() == 4;
  const bool fits = ranks && q.size(0) == k.size(0) && q.size(0) == v.size(0) &&
                    k.size(1) == v.size(1) && k.size(2) == v.size(2) && q.size(3) == k.size(3) &&
                    k.size(1) > 0 && q.size(1) % k.size(1) == 0;
  LOCKSTEP_CHECK(fits, InvalidArgument, ops::scaled_dot_product_attention.name, ": q ", q.shape(),
                 ", k ", k.shape(), ", v ", v.shape(),
                 " do not fit; expected [N, H, T, D], [N, G, S, D], [N, G, S, V] with H a multiple "
                 "of G");
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
                                    const AttentionOptions& options) {
  if (needs_scores(options)) {
    const ComposedOp call(ops::scaled_dot_product_attention, q_in, k_in, v_in);
    check_shapes(q_in, k_in, v_in);
    return attend_by_scores(call.name(), call[0], call[1], call[2], options);
  }
  const OpCall call(ops::scaled_dot_product_attention, q_in, k_in, v_in);
  check_shapes(q_in, k_in, v_in);
  const auto operand = [&](std::size_t i) { return no_grad([&] { return dense_last(call[i]); }); };
  const AttentionOperands of =
      operands_of(call.name(), operand(0), operand(1), operand(2), options);
  Tensor out =
      empty_heads({of.q.size(0), of.q.size(1), of.q.size(2), of.v.size(3)}, of.q.options());
  const Tensor lse = attend(of, out);
  if (!call.recording()) return out;
  const auto backward = [q = SavedTensor(of.q), k = SavedTensor(of.k), v = SavedTensor(of.v),
                         mask = SavedTensor(of.mask), options = of.options,
                         out = SavedTensor::of_result(out),
                         lse = SavedTensor(lse)](const Tensor& dy, InputGradients& inputs) {
    if (inputs.creates_graph())
      return set_composed(inputs, dy,
                          {inputs.operand(0, q), inputs.operand(1, k), inputs.operand(2, v)},
                          [&](std::span<const Tensor> in) {
                            return attend_by_scores(ops::scaled_dot_product_attention.name, in[0],
                                                    in[1], in[2], given(options, mask.get()));
                          });
    const AttentionOperands again{q.get(), k.get(), v.get(), mask.get(), options};
    auto gradients = empty_gradients(again.q, again.k, again.v);
    attend_backward(again, {out.get(), lse.get(), dense_last(dy)}, gradients);
    for (std::size_t i = 3; i-- > 0;) inputs.set(i, std::move(gradients[i]));
  };
  return call.record(out, Differentiable{backward});
}

namespace {

/// Of attention to itself, from recorded ops.
Tensor attend_to_self(const Tensor& packed, std::int64_t heads, const AttentionOptions& options) {
  const auto [q, k, v] = split_packed(packed, heads);
  const Tensor out = attend_by_scores(ops::self_attention.name, q, k, v, options);
  return out.transpose(1, 2).reshape({q.size(0), q.size(2), packed.size(2) / 3});
}

struct SelfAttentionBackward {
  static constexpr bool uses_column_sums = true, is_differentiable = true;
  std::int64_t heads;
  SavedTensor qkv, mask, out, lse;
  kernels::AttentionOptions options;

  void operator()(const Tensor& dy_in, InputGradients& inputs) const {
    if (inputs.creates_graph())
      return set_composed(inputs, dy_in, {inputs.operand(0, qkv)}, [&](std::span<const Tensor> in) {
        return attend_to_self(in[0], heads, given(options, mask.get()));
      });
    const Tensor& packed = qkv.get();
    const auto [q, k, v] = split_packed(packed, heads);
    const Tensor dy = dy_in.contiguous(), dqkv = empty(packed.shape(), packed.options());
    attend_backward({q, k, v, mask.get(), options},
                    {split_heads(out.get(), heads), lse.get(), split_heads(dy, heads)},
                    split_packed(dqkv, heads));
    inputs.pass_column_sums(0, dqkv, sums(dy.size(2), inputs.column_sums()));
    inputs.set(0, dqkv);
  }

  /// The slopes of a softmax sum to 0, and so do keys' gradients. Its values sum to 1 where each
  /// query sees a key: then gradients of values sum to what those of the result do.
  ColumnSums sums(std::int64_t features, const ColumnSums& of_result) const {
    const bool is_known = !mask.get().defined() && of_result.has_parts();
    return {.parts = {{{.columns = features},
                       {.columns = features, .is_zero = true},
                       is_known ? of_result.parts[0] : ColumnSums::Part{.columns = features}}}};
  }
};

}  // namespace

Tensor self_attention(const Tensor& qkv_in, std::int64_t heads, const AttentionOptions& options) {
  if (needs_scores(options)) {
    const ComposedOp call(ops::self_attention, qkv_in);
    check_packed(qkv_in, heads);
    return attend_to_self(call[0], heads, options);
  }
  const OpCall call(ops::self_attention, qkv_in);
  check_packed(qkv_in, heads);
  const Tensor qkv = call.dense(0);
  const auto [q, k, v] = no_grad([&] { return split_packed(qkv, heads); });
  const AttentionOperands of = operands_of(call.name(), q, k, v, options);
  const Tensor out = empty({qkv.size(0), qkv.size(1), qkv.size(2) / 3}, qkv.options());
  const Tensor lse = attend(of, split_heads(out, heads));
  if (!call.recording()) return out;
  return call.record(
      out, SelfAttentionBackward{heads, SavedTensor(qkv), SavedTensor(of.mask),
                                 SavedTensor::of_result(out), SavedTensor(lse), of.options});
}

}  // namespace lockstep
