#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cpu/families.hpp"
#include "backend/onednn/families.hpp"
#include "backend/onednn/library.hpp"
#include "backend/onednn/primitive_cache.hpp"
#include "backend/spatial.hpp"

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
bool normalise(ArrayView& x) {
  if (!dnn::normalise_image(x)) return false;
  if (x.rank() == 4) return true;
  const std::int64_t positions = x.numel() / (x.shape[0] * x.shape[1]);
  x.shape = {x.shape[0], x.shape[1], 1, positions};
  x.strides = positions == 1 ? channels_last_strides(x.shape) : contiguous_strides(x.shape);
  return true;
}

dnnl::batch_normalization_forward::primitive_desc forward_desc(const Spec& spec,
                                                               const memory::desc& data) {
  // With given statistics, training and inference are the same computation.
  const auto kind = dnnl::prop_kind::forward_training;
  const auto eps = static_cast<float>(spec.eps);
#if DNNL_VERSION_MAJOR >= 3
  return {dnn::engine(), kind, data, data, eps, spec.flags(), dnn::attributes()};
#else
  return {{kind, data, eps, spec.flags()}, dnn::attributes(), dnn::engine()};
#endif
}

dnnl::batch_normalization_backward::primitive_desc backward_desc(const Spec& spec,
                                                                 const memory::desc& data) {
  const auto kind =
      spec.scale || spec.shift ? dnnl::prop_kind::backward : dnnl::prop_kind::backward_data;
  const auto eps = static_cast<float>(spec.eps);
  const auto hint = forward_desc(spec, data);
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
    const auto desc = backward_desc(spec, data);
    runnable = {dnnl::batch_normalization_backward(desc), desc.scratchpad_desc()};
    runnable.add(DNNL_ARG_DIFF_SRC, data);
    runnable.add(DNNL_ARG_DIFF_DST, data);
  } else {
    const auto desc = forward_desc(spec, data);
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

/// True for absent vectors and contiguous f32 ones.
bool plain(std::initializer_list<const ArrayView*> vectors) {
  for (const ArrayView* v : vectors)
    if (*v && (v->dtype != DType::f32 || (v->shape[0] > 1 && v->strides[0] != 1))) return false;
  return true;
}

/// The primitive of a forward call, or null where the `cpu` backend has to run it.
dnn::Runnable* find_forward(Spec& spec, const ArrayView& y, const ArrayView& weight,
                            const ArrayView& bias) {
  const ArrayView& x = spec.x;
  if (!dnn::trains(x.dtype) || y.dtype != x.dtype || x.rank() < 2 || x.numel() == 0) return nullptr;
  ArrayView out = y;
  if (!normalise(spec.x) || !normalise(out) || !(out.strides == spec.x.strides)) return nullptr;
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

/// oneDNN's batch normalisation for f32 and bf16 data with f32 weights and statistics.
class OnednnBatchNorm final : public BatchNorm {
 public:
  void train(const ArrayView& y, const ArrayView& save_mean, const ArrayView& save_rstd,
             const ArrayView& running_mean, const ArrayView& running_var, const ArrayView& x,
             const ArrayView& weight, const ArrayView& bias, double momentum, double eps,
             StreamRef stream) override {
    Spec spec{.x = x, .eps = eps};
    dnn::Runnable* runnable = nullptr;
    if (plain({&save_mean, &save_rstd, &running_mean, &running_var, &weight, &bias}))
      runnable = find_forward(spec, y, weight, bias);
    if (!runnable)
      return cpu_batch_norm().train(y, save_mean, save_rstd, running_mean, running_var, x, weight,
                                    bias, momentum, eps, stream);
    run_forward(*runnable, y, x, save_mean.data, save_rstd.data, weight, bias);
    float* const variance = save_rstd.as<float>();
    const auto count = static_cast<double>(x.numel() / x.shape[1]);
    move(running_mean, save_mean.as<float>(), momentum, 1);
    move(running_var, variance, momentum, count / std::max(count - 1, 1.0));
    for (std::int64_t c = 0; c < x.shape[1]; ++c)
      variance[c] = static_cast<float>(1 / std::sqrt(static_cast<double>(variance[c]) + eps));
  }

  void eval(const ArrayView& y, const ArrayView& running_mean, const ArrayView& running_var,
            const ArrayView& x, const ArrayView& weight, const ArrayView& bias, double eps,
            StreamRef stream) override {
    Spec spec{.x = x, .global = true, .eps = eps};
    dnn::Runnable* runnable = nullptr;
    if (plain({&running_mean, &running_var, &weight, &bias}))
      runnable = find_forward(spec, y, weight, bias);
    if (!runnable)
      return cpu_batch_norm().eval(y, running_mean, running_var, x, weight, bias, eps, stream);
    run_forward(*runnable, y, x, running_mean.data, running_var.data, weight, bias);
  }

  void train_backward(const ArrayView& dx, const ArrayView& dweight, const ArrayView& dbias,
                      const ArrayView& dy, const ArrayView& x, const ArrayView& weight,
                      const ArrayView& save_mean, const ArrayView& save_rstd,
                      StreamRef stream) override {
    if (plain({&save_mean, &save_rstd})) {
      // The variance that gives the saved value with eps 0.
      const auto channels = static_cast<std::size_t>(x.shape[1]);
      float* variance = static_cast<float*>(dnn::working_memory(0, channels * sizeof(float)));
      for (std::size_t c = 0; c < channels; ++c) {
        const double rstd = save_rstd.as<const float>()[c];
        variance[c] = static_cast<float>(1 / (rstd * rstd));
      }
      const Gradients gradients{dx, dweight, dbias, dy, x, weight};
      if (run_backward({.x = x, .backward = true}, gradients, save_mean.data, variance)) return;
    }
    cpu_batch_norm().train_backward(dx, dweight, dbias, dy, x, weight, save_mean, save_rstd,
                                    stream);
  }

  void eval_backward(const ArrayView& dx, const ArrayView& dweight, const ArrayView& dbias,
                     const ArrayView& dy, const ArrayView& x, const ArrayView& weight,
                     const ArrayView& running_mean, const ArrayView& running_var, double eps,
                     StreamRef stream) override {
    const Spec spec{.x = x, .global = true, .backward = true, .eps = eps};
    const Gradients gradients{dx, dweight, dbias, dy, x, weight};
    if (plain({&running_mean, &running_var}) &&
        run_backward(spec, gradients, running_mean.data, running_var.data))
      return;
    cpu_batch_norm().eval_backward(dx, dweight, dbias, dy, x, weight, running_mean, running_var,
                                   eps, stream);
  }

 private:
  struct Gradients {
    const ArrayView &dx, &dweight, &dbias, &dy, &x, &weight;
  };

  static void run_forward(dnn::Runnable& runnable, const ArrayView& y, const ArrayView& x,
                          void* mean, void* variance, const ArrayView& weight,
                          const ArrayView& bias) {
    if (weight)
      runnable.run({y.data, x.data, mean, variance, weight.data, bias.data});
    else
      runnable.run({y.data, x.data, mean, variance});
  }

  /// @returns false where the `cpu` backend has to run it: it has no dx, or gradients but no
  /// weight.
  static bool run_backward(Spec spec, const Gradients& g, void* mean, void* variance) {
    const bool weights = g.dweight || g.dbias;
    if (!g.dx || (weights && !g.weight) || !plain({&g.dweight, &g.dbias, &g.weight})) return false;
    if (!dnn::trains(g.x.dtype) || g.dy.dtype != g.x.dtype || g.dx.dtype != g.x.dtype) return false;
    if (g.x.rank() < 2 || g.x.numel() == 0) return false;
    ArrayView dx = g.dx, dy = g.dy;
    if (!normalise(spec.x) || !normalise(dx) || !normalise(dy)) return false;
    if (!(dx.strides == spec.x.strides) || !(dy.strides == spec.x.strides)) return false;
    spec.scale = spec.shift = static_cast<bool>(g.weight);
    dnn::Runnable* runnable = find(spec);
    if (!runnable) return false;
    const auto bytes = static_cast<std::size_t>(spec.channels()) * sizeof(float);
    if (spec.scale) {
      void* dweight = g.dweight ? g.dweight.data : dnn::working_memory(1, bytes);
      void* dbias = g.dbias ? g.dbias.data : dnn::working_memory(2, bytes);
      // Version 2.6 asks for the shift, which no gradient depends on.
      runnable->run({dx.data, dy.data, g.x.data, mean, variance, g.weight.data, dweight, dbias,
                     g.weight.data});
    } else {
      runnable->run({dx.data, dy.data, g.x.data, mean, variance});
    }
    return true;
  }
};

}  // namespace

BatchNorm& onednn_batch_norm() {
  static OnednnBatchNorm family;
  return family;
}

}  // namespace lockstep::backend
