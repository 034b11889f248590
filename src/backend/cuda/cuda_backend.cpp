#include "backend/backend.hpp"
#include "backend/cuda/families.hpp"

namespace lockstep::backend {

const Backend* cuda() {
  static const Backend backend{
      .name = "cuda",
      .elementwise = cuda_families::elementwise(),
      .random = cuda_families::random(),
      .reduction = cuda_families::reduction(),
      .index = cuda_families::index(),
      .multi_tensor = cuda_families::multi_tensor(),
      .softmax = cuda_families::softmax(),
      .cross_entropy = cuda_families::cross_entropy(),
      .norm = cuda_families::norm(),
      .embedding = cuda_families::embedding(),
      .recurrent = cuda_families::recurrent(),
      .interpolation = cuda_families::interpolation(),
      .gemm = cuda_families::gemm(),
      .convolution = cuda_families::convolution(),
      .pooling = cuda_families::pooling(),
      .batch_norm = cuda_families::batch_norm(),
      .attention = cuda_families::attention(),
  };
  return &backend;
}

}  // namespace lockstep::backend
