#include "backend/backend.hpp"
#include "backend/reference/families.hpp"

namespace lockstep::backend {

const Backend& reference() {
  static const Backend table = {.name = "reference", .gemm = &reference_gemm()};
  return table;
}

}  // namespace lockstep::backend
