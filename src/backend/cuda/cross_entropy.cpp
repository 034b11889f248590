#include "arguments/cross_entropy.hpp"

#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"
#include "cuda/move.hpp"
#include "cuda/softmax.hpp"

namespace lockstep::backend {
namespace {

/// Class weights in the statistics dtype: the array itself, or a converted copy.
class ClassWeights {
 public:
  ClassWeights(const ArrayView& given, StreamRef stream)
      : converted_(given && given.dtype != DType::f64 && given.dtype != DType::f32),
        scratch_(converted_ ? static_cast<std::size_t>(given.numel()) * sizeof(float) : 0, stream),
        view_(given) {
    if (!converted_) return;
    view_ = {scratch_.data(), DType::f32, given.shape, contiguous_strides(given.shape)};
    cuda_kernels::copy({.out = view_, .in = given}, stream);
  }
  const ArrayView& view() const { return view_; }

 private:
  bool converted_;
  Scratch scratch_;
  ArrayView view_;
};

void forward(const kernels::CrossEntropyArguments& given, StreamRef stream) {
  const ClassWeights weight(given.weight, stream);
  kernels::CrossEntropyArguments arguments = given;
  arguments.weight = weight.view();
  cuda_kernels::cross_entropy(arguments, stream);
}

void backward(const kernels::CrossEntropyBackwardArguments& given, StreamRef stream) {
  const ClassWeights weight(given.weight, stream);
  kernels::CrossEntropyBackwardArguments arguments = given;
  arguments.weight = weight.view();
  cuda_kernels::cross_entropy_backward(arguments, stream);
}

}  // namespace

kernels::CrossEntropyKernels cuda_families::cross_entropy() {
  return {.forward = forward, .backward = backward};
}

}  // namespace lockstep::backend
