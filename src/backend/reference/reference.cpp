#include "backend/backend.hpp"
#include "backend/reference/families.hpp"

namespace lockstep::backend {

const Backend& reference() {
  static const Backend table = {.name = "reference"};
  return table;
}

}  // namespace lockstep::backend
