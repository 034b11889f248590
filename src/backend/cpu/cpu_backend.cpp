#include "backend/backend.hpp"
#include "backend/cpu/families.hpp"

namespace lockstep::backend {

const Backend& cpu() {
  static const Backend table = {.name = "cpu",
                                .elementwise = cpu_elementwise(),
                                .random = cpu_random(),
                                .reduction = cpu_reduction(),
                                .index = cpu_index(),
                                .multi_tensor = cpu_multi_tensor(),
                                .softmax = cpu_softmax(),
                                .cross_entropy = cpu_cross_entropy(),
                                .norm = cpu_norm(),
                                .embedding = cpu_embedding(),
                                .recurrent = cpu_recurrent(),
                                .interpolation = cpu_interpolation(),
                                .gemm = cpu_gemm(),
                                .convolution = cpu_convolution(),
                                .pooling = cpu_pooling(),
                                .batch_norm = cpu_batch_norm(),
                                .attention = cpu_attention()};
  return table;
}

}  // namespace lockstep::backend
