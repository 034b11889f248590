#include "memory/step_rehearsal.hpp"

#include <exception>
#include <new>

#include "lockstep/core/error.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep {

StepRehearsal::StepRehearsal(Device device, const Allocator& memory) noexcept
    : outer_(std::exchange(current_, this)), device_(device), memory_(&memory) {}

StepRehearsal::~StepRehearsal() {
  kept_.clear();
  read_.clear();
  current_ = outer_;
  for (const auto& [from, block] : aside_) from->deallocate(block);
}

void StepRehearsal::keep(const void* object, IntrusivePtr<RefCounted> memory) noexcept {
  if (device_.is_cpu()) return;
  try {
    kept_.emplace(object, std::move(memory));
  } catch (const std::bad_alloc&) {
    // The capture may find too little memory then, and is tried again.
  }
}

void StepRehearsal::give_back(Allocator& from, MemoryBlock* block, Device device) noexcept {
  if (&from == memory_ || device != device_ || device_.is_cpu()) return from.deallocate(block);
  try {
    aside_.emplace_back(&from, block);
  } catch (const std::bad_alloc&) {
    try {
      synchronize(current_stream(device_));
    } catch (const std::exception&) {
      // The device has failed: nothing runs on it any more.
    }
    from.deallocate(block);
  }
}

void StepRehearsal::note_made(const RefCounted* array) {
  for (StepRehearsal* each = this; each; each = each->outer_) each->made_.insert(array);
}

void StepRehearsal::note_read(const IntrusivePtr<RefCounted>& array, std::string_view op,
                              const Shape& shape) {
  for (StepRehearsal* each = this; each; each = each->outer_)
    if (!each->made_.contains(array.get()) && each->met_.insert(array.get()).second)
      each->read_.push_back({array, std::string(op), shape});
}

void StepRehearsal::refuse(std::string_view reason) {
  for (StepRehearsal* each = this; each; each = each->outer_)
    if (each->refusal_.empty()) each->refusal_ = reason;
}

std::string StepRehearsal::refusal() const {
  if (!refusal_.empty()) return refusal_;
  for (const Read& read : read_)
    if (read.array->use_count() == 1)
      return detail::concat("a tensor of shape ", read.shape, " that ", read.op,
                            " reads in the step, which did not make it, is gone when the step "
                            "returns: a launch would read what the first one has read. Make what "
                            "goes from call to call an input and a result");
  return {};
}

}  // namespace lockstep
