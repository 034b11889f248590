#include "lockstep/autograd/ops/attention.hpp"

#include <array>
#include <cmath>
#include <utility>

#include "autograd/ops/common.hpp"
#include "autograd/ops/heads.hpp"

namespace lockstep {

LOCKSTEP_OP(scaled_dot_product_attention, floating, lower_precision, same)

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

constexpr std::string_view op = ops::scaled_dot_product_attention.name;

/// A mask over all scores; a floating one in the dtype that mixed precision gave the operands.
Tensor mask_of(const Tensor& given, const Shape& scores, DType dtype) {
  if (!given.defined()) return {};
  const bool follows = thread_modes.autocast && is_floating(given.dtype());
  return (follows ? given.to(dtype) : given).expand(scores);
}

void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  const bool ranks = q.dim() == 4 && k.dim() == 4 && v.dim() == 4;
  const bool fits = ranks && q.size(0) == k.size(0) && q.size(0) == v.size(0) &&
                    k.size(1) == v.size(1) && k.size(2) == v.size(2) && q.size(3) == k.size(3) &&
                    k.size(1) > 0 && q.size(1) % k.size(1) == 0;
  LOCKSTEP_CHECK(fits, InvalidArgument, op, ": q ", q.shape(), ", k ", k.shape(), ", v ", v.shape(),
                 " do not fit; expected [N, H, T, D], [N, G, S, D], [N, G, S, V] with H a multiple "
                 "of G");
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
                                    const AttentionOptions& options) {
  const OpCall call(ops::scaled_dot_product_attention, q_in, k_in, v_in);
  check_shapes(q_in, k_in, v_in);
  const auto operand = [&](std::size_t i) { return no_grad([&] { return dense_last(call[i]); }); };
  const Tensor q = operand(0), k = operand(1), v = operand(2);
  const Shape scores{q.size(0), q.size(1), q.size(2), k.size(2)};
  const Tensor mask = mask_of(options.mask, scores, q.dtype());
  if (mask.defined()) check_same_device(op, q, mask);
  LOCKSTEP_CHECK(!mask.defined() || mask.dtype() == DType::boolean || mask.dtype() == q.dtype(),
                 InvalidArgument, op, ": the mask has dtype ", mask.dtype(),
                 ", it must be bool or ", q.dtype());
  LOCKSTEP_CHECK(!mask.defined() || !recording(mask), Unsupported, op,
                 ": the mask requires a gradient, which this op does not compute; detach() it");
  const kernels::AttentionOptions kernel_options{
      .scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3)))),
      .causal = options.is_causal};
  Tensor out = empty_heads({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  const Tensor lse =
      empty({q.size(0), q.size(1), q.size(2)}, {statistics_dtype(q.dtype()), q.device()});
  backend_of(q).attention.forward({.out = out.view(),
                                   .lse = lse.view(),
                                   .q = q.view(),
                                   .k = k.view(),
                                   .v = v.view(),
                                   .mask = view_or_absent(mask),
                                   .options = kernel_options},
                                  stream_of(q));
  if (!call.recording()) return out;
  return call.record(out,
                     [kernel_options, q = SavedTensor(q), k = SavedTensor(k), v = SavedTensor(v),
                      out = SavedTensor::of_result(out), lse = SavedTensor(lse),
                      mask = SavedTensor(mask)](const Tensor& dy_in, InputGradients& inputs) {
                       const Tensor &query = q.get(), &key = k.get(), &value = v.get();
                       const Tensor dy = dense_last(dy_in);
                       auto [dq, dk, dv] = empty_gradients(query, key, value);
                       backend_of(dy).attention.backward({.dq = dq.view(),
                                                          .dk = dk.view(),
                                                          .dv = dv.view(),
                                                          .dout = dy.view(),
                                                          .q = query.view(),
                                                          .k = key.view(),
                                                          .v = value.view(),
                                                          .out = out.get().view(),
                                                          .lse = lse.get().view(),
                                                          .mask = view_or_absent(mask.get()),
                                                          .options = kernel_options},
                                                         stream_of(dy));
                       inputs.set(2, std::move(dv));
                       inputs.set(1, std::move(dk));
                       inputs.set(0, std::move(dq));
                     });
}

}  // namespace lockstep
