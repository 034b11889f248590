#include "backend/backend.hpp"

namespace lockstep::backend {

const Backend* cuda() {
  static const Backend backend{.name = "cuda"};
  return &backend;
}

}  // namespace lockstep::backend
