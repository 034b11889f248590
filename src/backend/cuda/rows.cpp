#include "backend/rows.hpp"

#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"
#include "cuda/embedding.hpp"
#include "cuda/move.hpp"
#include "cuda/norm.hpp"
#include "cuda/softmax.hpp"
#include "lockstep/runtime/device_runtime.hpp"

namespace lockstep::backend {
namespace {

namespace kernels = cuda_kernels;

/// Class weights in the statistics dtype: the array itself, or a converted copy.
class ClassWeights {
 public:
  ClassWeights(const ArrayView& given, StreamRef stream)
      : converted_(given && given.dtype != DType::f64 && given.dtype != DType::f32),
        scratch_(converted_ ? static_cast<std::size_t>(given.numel()) * sizeof(float) : 0, stream),
        view_(given) {
    if (!converted_) return;
    view_ = {scratch_.data(), DType::f32, given.shape, contiguous_strides(given.shape)};
    kernels::copy(view_, given, stream);
  }
  const ArrayView& view() const { return view_; }

 private:
  bool converted_;
  Scratch scratch_;
  ArrayView view_;
};

class CudaRows final : public Rows {
 public:
  void softmax(const ArrayView& y, const ArrayView& x, bool log, StreamRef stream) override {
    kernels::softmax(y, x, log, stream);
  }
  void softmax_backward(const ArrayView& dx, const ArrayView& dy, const ArrayView& y, bool log,
                        StreamRef stream) override {
    kernels::softmax_backward(dx, dy, y, log, stream);
  }
  void cross_entropy(const ArrayView& loss, const ArrayView& statistics,
                     const ArrayView& row_weight, const ArrayView& logits, const ArrayView& targets,
                     const ArrayView& weight, CrossEntropyOptions options,
                     StreamRef stream) override {
    const ClassWeights weights(weight, stream);
    kernels::cross_entropy({.loss = loss,
                            .statistics = statistics,
                            .row_weight = row_weight,
                            .logits = logits,
                            .targets = targets,
                            .weight = weights.view()},
                           options.ignore_index, options.label_smoothing, stream);
  }
  void cross_entropy_backward(const ArrayView& dlogits, const ArrayView& dloss,
                              const ArrayView& logits, const ArrayView& targets,
                              const ArrayView& weight, const ArrayView& statistics,
                              CrossEntropyOptions options, StreamRef stream) override {
    const ClassWeights weights(weight, stream);
    kernels::cross_entropy_backward({.dlogits = dlogits,
                                     .dloss = dloss,
                                     .logits = logits,
                                     .targets = targets,
                                     .weight = weights.view(),
                                     .statistics = statistics},
                                    options.ignore_index, options.label_smoothing, stream);
  }
  void layer_norm(const ArrayView& y, const ArrayView& mean, const ArrayView& rstd,
                  const ArrayView& x, const ArrayView& weight, const ArrayView& bias, double eps,
                  StreamRef stream) override {
    kernels::norm({y, mean, rstd, x, weight, bias}, eps, stream);
  }
  void layer_norm_backward(const ArrayView& dx, const ArrayView& dweight, const ArrayView& dbias,
                           const ArrayView& dy, const ArrayView& x, const ArrayView& weight,
                           const ArrayView& mean, const ArrayView& rstd, bool accumulate,
                           StreamRef stream) override {
    backward({dx, dweight, dbias, dy, x, weight, mean, rstd, accumulate}, stream);
  }
  void rms_norm(const ArrayView& y, const ArrayView& rstd, const ArrayView& x,
                const ArrayView& weight, double eps, StreamRef stream) override {
    kernels::norm({y, {}, rstd, x, weight, {}}, eps, stream);
  }
  void rms_norm_backward(const ArrayView& dx, const ArrayView& dweight, const ArrayView& dy,
                         const ArrayView& x, const ArrayView& weight, const ArrayView& rstd,
                         bool accumulate, StreamRef stream) override {
    backward({dx, dweight, {}, dy, x, weight, {}, rstd, accumulate}, stream);
  }
  void embedding(const ArrayView& out, const ArrayView& table, const ArrayView& index,
                 StreamRef stream) override {
    kernels::embedding(out, table, index, stream);
  }
  void embedding_backward(const ArrayView& dtable, const ArrayView& dy, const ArrayView& index,
                          std::int64_t padding_index, bool accumulate, StreamRef stream) override {
    const auto bytes = static_cast<std::size_t>(dtable.numel()) * size_of(dtable.dtype);
    if (!accumulate) device_runtime(DeviceType::cuda).fill_bytes(dtable.data, 0, bytes, stream);
    const Scratch scratch(kernels::embedding_scratch_bytes(index.numel()), stream);
    kernels::embedding_backward(dtable, dy, index, padding_index, scratch.data(), stream);
  }

 private:
  static void backward(const kernels::NormGradients& arrays, StreamRef stream) {
    const Scratch scratch(kernels::norm_scratch_bytes(arrays), stream);
    kernels::norm_backward(arrays, scratch.data(), stream);
  }
};

}  // namespace

Rows& cuda_families::rows() {
  static CudaRows family;
  return family;
}

}  // namespace lockstep::backend
