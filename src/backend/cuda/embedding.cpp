#include "cuda/embedding.hpp"

#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"
#include "lockstep/runtime/device_runtime.hpp"

namespace lockstep::backend {
namespace {

void backward(const kernels::EmbeddingBackwardArguments& a, StreamRef stream) {
  const auto bytes = static_cast<std::size_t>(a.dtable.numel()) * size_of(a.dtable.dtype);
  if (!a.accumulate) device_runtime(DeviceType::cuda).fill_bytes(a.dtable.data, 0, bytes, stream);
  const Scratch scratch(cuda_kernels::embedding_scratch_bytes(a.index.numel()), stream);
  cuda_kernels::embedding_backward(a, scratch.data(), stream);
}

}  // namespace

kernels::EmbeddingKernels cuda_families::embedding() {
  return {.forward = cuda_kernels::embedding, .backward = backward};
}

}  // namespace lockstep::backend
