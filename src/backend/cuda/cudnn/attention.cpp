#include <cudnn.h>

#include "backend/cuda/cudnn/known_faults.hpp"
#include "backend/cuda/cudnn/target.hpp"
#include "backend/cuda/cudnn_ops.hpp"
#include "lockstep/core/deterministic.hpp"
#include "lockstep/core/thread_kept.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/device_guard.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::backend::cudnn {
namespace {

enum : std::int64_t {
  q_uid = 1,
  k_uid,
  v_uid,
  out_uid,
  lse_uid,
  mask_uid,
  dout_uid,
  dq_uid,
  dk_uid,
  dv_uid
};

/// cuDNN's fused kernels take 16-bit floats, read them as vectors of 16 bytes, and take masks that
/// are added and span queries and keys.
bool may_fuse(const AttentionArrays& arrays) {
  const DType dtype = arrays.q.dtype;
  if (dtype != DType::bf16 && dtype != DType::f16) return false;
  for (const ArrayView* view : {&arrays.q, &arrays.k, &arrays.v, &arrays.out, &arrays.dout,
                                &arrays.dq, &arrays.dk, &arrays.dv})
    if (alignment(*view) < 16) return false;
  if (!arrays.mask) return true;
  return arrays.mask.dtype == dtype && arrays.mask.strides[2] != 0 && arrays.mask.strides[3] == 1;
}

int sm_version_of(int device) {
  int major = 0, minor = 0;
  LOCKSTEP_CUDA_CALL(cudaDeviceGetAttribute, &major, cudaDevAttrComputeCapabilityMajor, device);
  LOCKSTEP_CUDA_CALL(cudaDeviceGetAttribute, &minor, cudaDevAttrComputeCapabilityMinor, device);
  return 10 * major + minor;
}

/// On a GPU of this machine.
bool is_known_to_fail(const AttentionArrays& arrays, const AttentionOptions& options,
                      StreamRef stream) {
  static const std::size_t version = cudnnGetVersion();
  return has_known_fault({.version = version,
                          .sm_version = sm_version_of(stream.device.index),
                          .is_backward = static_cast<bool>(arrays.dq),
                          .is_captured = StepRecording::current() != nullptr,
                          .is_causal = options.causal,
                          .has_mask = static_cast<bool>(arrays.mask),
                          .queries = arrays.q.shape[2],
                          .keys = arrays.k.shape[2],
                          .features = arrays.q.shape[3],
                          .of_values = arrays.v.shape[3]});
}

/// A broadcast dimension has extent 1 in cuDNN's terms.
ArrayView unexpanded(ArrayView mask) {
  for (int d = 0; d < 2; ++d) {
    if (mask.strides[d] != 0) continue;
    mask.shape[d] = 1;
    mask.strides[d] = mask.shape[2] * mask.strides[2];
  }
  return mask;
}

/// [N, H, T] statistics as the [N, H, T, 1] of cuDNN.
ArrayView statistics(const ArrayView& lse) {
  ArrayView view = lse;
  view.shape.push_back(1);
  view.strides = contiguous_strides(view.shape);
  return view;
}

Key key_of(const AttentionArrays& arrays, const AttentionOptions& options, StreamRef stream) {
  Key key;
  key.add(stream.device.index)
      .add(deterministic_algorithms())
      .add(options.causal)
      .add(std::bit_cast<std::int64_t>(options.scale));
  for (const ArrayView* view : {&arrays.q, &arrays.k, &arrays.v, &arrays.out, &arrays.mask,
                                &arrays.dout, &arrays.dq, &arrays.dk, &arrays.dv})
    key.add(*view);
  return key;
}

/// What forward and backward set alike.
template <class Attributes>
Attributes common_attributes(Graph& graph, const AttentionArrays& arrays,
                             const AttentionOptions& options) {
  Attributes attributes;
  attributes.set_attn_scale(static_cast<float>(options.scale));
  if (arrays.mask) attributes.set_bias(graph.tensor(describe(unexpanded(arrays.mask), mask_uid)));
  if (options.causal)
    attributes.set_diagonal_alignment(frontend::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  return attributes;
}

Plan build_forward(const AttentionArrays& arrays, const AttentionOptions& options,
                   const PlanTarget& target) {
  using namespace frontend::graph;
  auto graph = new_graph(arrays.q.dtype);
  auto attributes = common_attributes<SDPA_attributes>(*graph, arrays, options);
  attributes.set_generate_stats(true);
  const auto q = graph->tensor(describe(arrays.q, q_uid));
  const auto k = graph->tensor(describe(arrays.k, k_uid));
  const auto v = graph->tensor(describe(arrays.v, v_uid));
  const auto [out, lse] = graph->sdpa(q, k, v, attributes);
  write_to(out, arrays.out, out_uid);
  write_to(lse, statistics(arrays.lse), lse_uid);
  return {std::move(graph), {.full_precision = false, .deterministic = false}, target};
}

Plan build_backward(const AttentionArrays& arrays, const AttentionOptions& options,
                    const PlanTarget& target) {
  using namespace frontend::graph;
  auto graph = new_graph(arrays.q.dtype);
  auto attributes = common_attributes<SDPA_backward_attributes>(*graph, arrays, options);
  // On Hopper that one stores the gradients of all scores, 2 bytes each.
  attributes.set_deterministic_algorithm(deterministic_algorithms());
  const auto q = graph->tensor(describe(arrays.q, q_uid));
  const auto k = graph->tensor(describe(arrays.k, k_uid));
  const auto v = graph->tensor(describe(arrays.v, v_uid));
  const auto out = graph->tensor(describe(arrays.out, out_uid));
  const auto dout = graph->tensor(describe(arrays.dout, dout_uid));
  const auto lse = graph->tensor(describe(statistics(arrays.lse), lse_uid));
  const auto [dq, dk, dv] = graph->sdpa_backward(q, k, v, out, dout, lse, attributes);
  write_to(dq, arrays.dq, dq_uid);
  write_to(dk, arrays.dk, dk_uid);
  write_to(dv, arrays.dv, dv_uid);
  return {std::move(graph), {.full_precision = false, .deterministic = false}, target};
}

std::unordered_map<std::int64_t, void*> pointers(const AttentionArrays& arrays) {
  std::unordered_map<std::int64_t, void*> map{{q_uid, arrays.q.data},
                                              {k_uid, arrays.k.data},
                                              {v_uid, arrays.v.data},
                                              {out_uid, arrays.out.data},
                                              {lse_uid, arrays.lse.data}};
  if (arrays.mask) map.emplace(mask_uid, arrays.mask.data);
  return map;
}

}  // namespace

bool attention_forward(const AttentionArrays& arrays, AttentionOptions options, StreamRef stream) {
  if (!may_fuse(arrays) || is_known_to_fail(arrays, options, stream)) return false;
  const CudaDeviceGuard guard(stream.device.index);
  thread_local detail::KeptByThread<std::map<Key, Plan>> plans;
  Plan& plan = plan_for(plans.get(), key_of(arrays, options, stream),
                        [&] { return build_forward(arrays, options, stream); });
  if (plan.supported()) plan.run(pointers(arrays), stream);
  return plan.supported();
}

bool attention_backward(const AttentionArrays& arrays, AttentionOptions options, StreamRef stream) {
  if (!may_fuse(arrays) || is_known_to_fail(arrays, options, stream)) return false;
  const CudaDeviceGuard guard(stream.device.index);
  thread_local detail::KeptByThread<std::map<Key, Plan>> plans;
  Plan& plan = plan_for(plans.get(), key_of(arrays, options, stream),
                        [&] { return build_backward(arrays, options, stream); });
  if (!plan.supported()) return false;
  auto map = pointers(arrays);
  map.insert({{dout_uid, arrays.dout.data},
              {dq_uid, arrays.dq.data},
              {dk_uid, arrays.dk.data},
              {dv_uid, arrays.dv.data}});
  plan.run(std::move(map), stream);
  return true;
}

bool has_plan(const GpuDescription& gpu, const AttentionArrays& arrays, AttentionOptions options) {
  if (!may_fuse(arrays)) return false;
  const PlanTarget target(gpu);
  return (arrays.dq ? build_backward(arrays, options, target)
                    : build_forward(arrays, options, target))
      .supported();
}

}  // namespace lockstep::backend::cudnn
