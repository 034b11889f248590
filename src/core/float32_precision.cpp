#include "lockstep/core/float32_precision.hpp"

#include <atomic>

namespace lockstep {
namespace {

std::atomic<Float32Precision> current{Float32Precision::ieee};

}  // namespace

void set_float32_precision(Float32Precision precision) noexcept {
  current.store(precision, std::memory_order_relaxed);
}

Float32Precision float32_precision() noexcept { return current.load(std::memory_order_relaxed); }

}  // namespace lockstep
