#include "arguments/batch_norm.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/onednn/families.hpp"
#include "backend/onednn/library.hpp"
#include "backend/onednn/primitive_cache.hpp"

namespace lockstep::backend {
namespace {

using dnnl::memory;
using dnnl::normalization_flags;

/// What a primitive depends on.
struct Spec {
  ArrayView x;
  bool scale = false, shift = false, global = false;
  bool backward = false;
  double eps = 0;

  dnn::Key key() const {
    dnn::Key result;
    result.add(x);
    result.add(scale + 2 * shift + 4 * global + 8 * backward);
    result.add(std::bit_cast<std::int64_t>(eps));
    return result;
  }
  normalization_flags flags() const {
    auto all = normalization_flags::none;
    if (scale) all = all | normalization_flags::use_scale;
    if (shift) all = all | normalization_flags::use_shift;
    if (global) all = all | normalization_flags::use_global_stats;
    return all;
  }
  std::int64_t channels() const { return x.shape[1]; }
};

/// [N, C, ...] as the [N, C, 1, positions] that oneDNN has most code for.
bool normalise_to_image(ArrayView& x) {
  if (!dnn::normalise_image(x)) return false;
  if (x.rank() == 4) return true;
  const std::int64_t positions = x.numel() / (x.shape[0] * x.shape[1]);
  x.shape = {x.shape[0], x.shape[1], 1, positions};
  x.strides = positions == 1 ? channels_last_strides(x.shape) : contiguous_strides(x.shape);
  return true;
}

dnnl::batch_normalization_forward::primitive_desc batch_norm_forward_desc(
    const Spec& spec, const memory::desc& data) {
  // With given statistics, training and inference are the same computation.
  const auto kind = dnnl::prop_kind::forward_training;
  const auto eps = static_cast<float>(spec.eps);
#if DNNL_VERSION_MAJOR >= 3
  return {dnn::engine(), kind, data, data, eps, spec.flags(), dnn::attributes()};
#else
  return {{kind, data, eps, spec.flags()}, dnn::attributes(), dnn::engine()};
#endif
}

dnnl::batch_normalization_backward::primitive_desc batch_norm_backward_desc(
    const Spec& spec, const memory::desc& data) {
  const auto kind =
      spec.scale || spec.shift ? dnnl::prop_kind::backward : dnnl::prop_kind::backward_data;
  const auto eps = static_cast<float>(spec.eps);
  const auto hint = batch_norm_forward_desc(spec, data);
#if DNNL_VERSION_MAJOR >= 3
  return {dnn::engine(), kind, data, data, data, eps, spec.flags(), hint, dnn::attributes()};
#else
  return {{kind, data, data, eps, spec.flags()}, dnn::attributes(), dnn::engine(), hint};
#endif
}

dnn::Runnable make_runnable(const Spec& spec) {
  const auto data = dnn::describe(spec.x);
  const memory::desc vector({spec.channels()}, memory::data_type::f32, memory::format_tag::a);
  dnn::Runnable runnable;
  if (spec.backward) {
    const auto desc = batch_norm_backward_desc(spec, data);
    runnable = {dnnl::batch_normalization_backward(desc), desc.scratchpad_desc()};
    runnable.add(DNNL_ARG_DIFF_SRC, data);
    runnable.add(DNNL_ARG_DIFF_DST, data);
  } else {
    const auto desc = batch_norm_forward_desc(spec, data);
    runnable = {dnnl::batch_normalization_forward(desc), desc.scratchpad_desc()};
    runnable.add(DNNL_ARG_DST, data);
  }
  runnable.add(DNNL_ARG_SRC, data);
  runnable.add(DNNL_ARG_MEAN, vector);
  runnable.add(DNNL_ARG_VARIANCE, vector);
  if (spec.scale) runnable.add(DNNL_ARG_SCALE, vector);
  if (spec.backward && spec.scale) {
    runnable.add(DNNL_ARG_DIFF_SCALE, vector);
    runnable.add(DNNL_ARG_DIFF_SHIFT, vector);
  }
  if (spec.shift) runnable.add(DNNL_ARG_SHIFT, vector);
  return runnable;
}

dnn::Runnable* find(const Spec& spec) {
  static thread_local dnn::PrimitiveCache<dnn::Runnable> cache;
  dnn::Runnable& runnable = cache.get(spec.key(), [&] {
    return dnn::make_or_empty("batch_norm", {&spec.x}, [&] { return make_runnable(spec); });
  });
  return runnable ? &runnable : nullptr;
}

// oneDNN takes f32 data, weights and statistics. The rest is the `cpu` backend's, and so are bf16
// and channels-last images, in which its loops are faster, and what follows in the same pass.

bool takes(const ArrayView& x) { return x.dtype == DType::f32 && !dnn::is_channels_last(x); }

/// True for absent vectors and contiguous f32 ones.
bool plain_vectors(std::initializer_list<const ArrayView*> vectors) {
  for (const ArrayView* v : vectors)
    if (*v && (v->dtype != DType::f32 || (v->shape[0] > 1 && v->strides[0] != 1))) return false;
  return true;
}

/// The primitive of a forward call, or null where the `cpu` backend has to run it.
dnn::Runnable* find_forward(Spec& spec, const ArrayView& y, const ArrayView& weight,
                            const ArrayView& bias) {
  const ArrayView& x = spec.x;
  if (!takes(x) || y.dtype != x.dtype || x.rank() < 2 || x.numel() == 0) return nullptr;
  ArrayView out = y;
  if (!normalise_to_image(spec.x) || !normalise_to_image(out) || !(out.strides == spec.x.strides))
    return nullptr;
  spec.scale = static_cast<bool>(weight);
  spec.shift = static_cast<bool>(bias);
  return spec.scale == spec.shift ? find(spec) : nullptr;
}

void move(const ArrayView& running, const float* batch, double momentum, double factor) {
  if (!running) return;
  float* values = running.as<float>();
  for (std::int64_t c = 0; c < running.shape[0]; ++c)
    values[c] += static_cast<float>(momentum * (factor * batch[c] - values[c]));
}

void run_forward(dnn::Runnable& runnable, const ArrayView& y, const ArrayView& x, void* mean,
                 void* variance, const ArrayView& weight, const ArrayView& bias) {
  if (weight)
    runnable.run({y.data, x.data, mean, variance, weight.data, bias.data});
  else
    runnable.run({y.data, x.data, mean, variance});
}

/// Gradients of both modes. @returns false where the `cpu` backend has to run it: it has no dx, or
/// gradients but no weight.
template <class Arguments>
bool run_backward(Spec spec, const Arguments& a, void* mean, void* variance) {
  const bool weights = a.dweight || a.dbias;
  if (a.relu.y || !a.dx || (weights && !a.weight) ||
      !plain_vectors({&a.dweight, &a.dbias, &a.weight}))
    return false;
  if (!takes(a.x) || a.dy.dtype != a.x.dtype || a.dx.dtype != a.x.dtype) return false;
  if (a.x.rank() < 2 || a.x.numel() == 0) return false;
  ArrayView dx = a.dx, dy = a.dy;
  if (!normalise_to_image(spec.x) || !normalise_to_image(dx) || !normalise_to_image(dy))
    return false;
  if (!(dx.strides == spec.x.strides) || !(dy.strides == spec.x.strides)) return false;
  spec.scale = spec.shift = static_cast<bool>(a.weight);
  dnn::Runnable* runnable = find(spec);
  if (!runnable) return false;
  const auto bytes = static_cast<std::size_t>(spec.channels()) * sizeof(float);
  if (spec.scale) {
    void* dweight = a.dweight ? a.dweight.data : dnn::working_memory(1, bytes);
    void* dbias = a.dbias ? a.dbias.data : dnn::working_memory(2, bytes);
    // Version 2.6 asks for the shift, which no gradient depends on.
    runnable->run(
        {dx.data, dy.data, a.x.data, mean, variance, a.weight.data, dweight, dbias, a.weight.data});
  } else {
    runnable->run({dx.data, dy.data, a.x.data, mean, variance});
  }
  return true;
}

void train(const kernels::BatchNormTrainArguments& a, StreamRef stream) {
  Spec spec{.x = a.x, .eps = a.eps};
  dnn::Runnable* runnable = nullptr;
  if (!a.residual && !a.relu &&
      plain_vectors(
          {&a.save_mean, &a.save_rstd, &a.running_mean, &a.running_var, &a.weight, &a.bias}))
    runnable = find_forward(spec, a.y, a.weight, a.bias);
  if (!runnable) return cpu().batch_norm.train(a, stream);
  run_forward(*runnable, a.y, a.x, a.save_mean.data, a.save_rstd.data, a.weight, a.bias);
  float* const variance = a.save_rstd.as<float>();
  const auto count = static_cast<double>(a.x.numel() / a.x.shape[1]);
  move(a.running_mean, a.save_mean.as<float>(), a.momentum, 1);
  move(a.running_var, variance, a.momentum, count / std::max(count - 1, 1.0));
  for (std::int64_t c = 0; c < a.x.shape[1]; ++c)
    variance[c] = static_cast<float>(1 / std::sqrt(static_cast<double>(variance[c]) + a.eps));
  if (a.num_batches_tracked) ++*a.num_batches_tracked.as<std::int64_t>();
}

void eval(const kernels::BatchNormEvalArguments& a, StreamRef stream) {
  Spec spec{.x = a.x, .global = true, .eps = a.eps};
  dnn::Runnable* runnable = nullptr;
  if (!a.residual && !a.relu &&
      plain_vectors({&a.running_mean, &a.running_var, &a.weight, &a.bias}))
    runnable = find_forward(spec, a.y, a.weight, a.bias);
  if (!runnable) return cpu().batch_norm.eval(a, stream);
  run_forward(*runnable, a.y, a.x, a.running_mean.data, a.running_var.data, a.weight, a.bias);
}

void train_backward(const kernels::BatchNormTrainBackwardArguments& a, StreamRef stream) {
  if (plain_vectors({&a.save_mean, &a.save_rstd})) {
    // The variance that gives the saved value with eps 0.
    const auto channels = static_cast<std::size_t>(a.x.shape[1]);
    float* variance = static_cast<float*>(dnn::working_memory(0, channels * sizeof(float)));
    for (std::size_t c = 0; c < channels; ++c) {
      const double rstd = a.save_rstd.as<const float>()[c];
      variance[c] = static_cast<float>(1 / (rstd * rstd));
    }
    if (run_backward({.x = a.x, .backward = true}, a, a.save_mean.data, variance)) return;
  }
  cpu().batch_norm.train_backward(a, stream);
}

void eval_backward(const kernels::BatchNormEvalBackwardArguments& a, StreamRef stream) {
  const Spec spec{.x = a.x, .global = true, .backward = true, .eps = a.eps};
  if (plain_vectors({&a.running_mean, &a.running_var}) &&
      run_backward(spec, a, a.running_mean.data, a.running_var.data))
    return;
  cpu().batch_norm.eval_backward(a, stream);
}

}  // namespace

kernels::BatchNormKernels onednn_batch_norm() {
  kernels::BatchNormKernels table = cpu_kernels::batch_norm::table();
  table.train = train;
  table.eval = eval;
  table.train_backward = train_backward;
  table.eval_backward = eval_backward;
  return table;
}

}  // namespace lockstep::backend
