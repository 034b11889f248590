#include "backend/backend.hpp"

#include "backend/onednn/families.hpp"

namespace lockstep::backend {

const Backend* onednn() {
  static const Backend table = [] {
    Backend backend = cpu();
    backend.name = "onednn";
    backend.gemm = onednn_gemm();
    backend.convolution = onednn_convolution();
    backend.attention = blocked_attention();
    return backend;
  }();
  return &table;
}

}  // namespace lockstep::backend
