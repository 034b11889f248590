#include "backend/backend.hpp"
#include "backend/reference/families.hpp"

namespace lockstep::backend {

const Backend& reference() {
  static const Backend table = {.name = "reference",
                                .elementwise = &reference_elementwise(),
                                .reduce = &reference_reduce(),
                                .multi_tensor = &reference_multi_tensor(),
                                .softmax = reference_softmax(),
                                .cross_entropy = reference_cross_entropy(),
                                .norm = reference_norm(),
                                .embedding = reference_embedding(),
                                .gemm = &reference_gemm(),
                                .convolution = &reference_convolution(),
                                .pooling = &reference_pooling(),
                                .batch_norm = &reference_batch_norm(),
                                .attention = &reference_attention()};
  return table;
}

}  // namespace lockstep::backend
