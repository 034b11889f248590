#include "backend/backend.hpp"
#include "backend/cuda/families.hpp"

namespace lockstep::backend {

const Backend* cuda() {
  static const Backend backend{
      .name = "cuda",
      .elementwise = &cuda_families::elementwise(),
      .gemm = &cuda_families::gemm(),
  };
  return &backend;
}

}  // namespace lockstep::backend
