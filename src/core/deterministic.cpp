#include "lockstep/core/deterministic.hpp"

#include <atomic>

namespace lockstep {
namespace {

std::atomic<bool> only_deterministic{false};

}  // namespace

void set_deterministic_algorithms(bool deterministic) noexcept {
  only_deterministic.store(deterministic, std::memory_order_relaxed);
}

bool deterministic_algorithms() noexcept {
  return only_deterministic.load(std::memory_order_relaxed);
}

}  // namespace lockstep
