#include "base/first_device.hpp"

#include <algorithm>
#include <cstdlib>

namespace simgpu {

int first_device() {
  static const int first = [] {
    const char* const text = std::getenv("LOCKSTEP_SIM_FIRST_DEVICE");
    return text == nullptr ? 0 : std::clamp(std::atoi(text), 0, 15);
  }();
  return first;
}

}  // namespace simgpu
