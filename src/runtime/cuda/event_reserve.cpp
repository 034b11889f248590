#include "runtime/cuda/event_reserve.hpp"

#include <memory>
#include <utility>

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep {

ReservedEvent* EventReserve::acquire(int device, bool timing) {
  {
    const std::lock_guard lock(mutex_);
    const auto index = static_cast<std::size_t>(device);
    if (index >= idle_.size()) idle_.resize(index + 1);
    ReservedEvent*& first = idle_[index][timing];
    if (first) return std::exchange(first, first->next);
  }
  const CudaDeviceGuard guard(device);
  auto made = std::make_unique<ReservedEvent>();
  made->device = device;
  made->timing = timing;
  LOCKSTEP_CUDA_CALL(cudaEventCreateWithFlags, &made->event,
                     timing ? cudaEventDefault : cudaEventDisableTiming);
  return made.release();
}

void EventReserve::release(ReservedEvent* event) noexcept {
  const std::lock_guard lock(mutex_);
  event->next = std::exchange(idle_[static_cast<std::size_t>(event->device)][event->timing], event);
}

void EventReserve::clear() noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& kinds : idle_)
    for (ReservedEvent*& first : kinds)
      while (first) {
        const std::unique_ptr<ReservedEvent> event(std::exchange(first, first->next));
        static_cast<void>(cudaEventDestroy(event->event));
      }
}

}  // namespace lockstep
