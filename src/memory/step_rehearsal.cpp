#include "memory/step_rehearsal.hpp"

#include <exception>
#include <new>

#include "lockstep/memory/allocator.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep {

StepRehearsal::StepRehearsal(Device device, const Allocator& memory) noexcept
    : outer_(std::exchange(current_, this)), device_(device), memory_(&memory) {}

StepRehearsal::~StepRehearsal() {
  kept_.clear();
  read_.clear();
  current_ = outer_;
  // The streams of others wait for an outer one's when that ends.
  for (const auto& [from, block] : aside_)
    outer_ ? outer_->give_back(*from, block, device_) : from->deallocate(block);
}

void StepRehearsal::keep(const void* object, IntrusivePtr<RefCounted> memory) noexcept {
  if (device_.is_cpu()) return;
  try {
    kept_.try_emplace(object, std::move(memory));
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

void StepRehearsal::note_made(RefCounted* array) {
  for (StepRehearsal* each = this; each; each = each->outer_) each->made_.insert(array);
}

void StepRehearsal::note_gone(RefCounted* array) noexcept {
  for (StepRehearsal* each = this; each; each = each->outer_) each->made_.erase(array);
}

void StepRehearsal::note_read(const IntrusivePtr<RefCounted>& array, std::string_view reader,
                              const Shape& shape) {
  for (StepRehearsal* each = this; each; each = each->outer_)
    if (!each->made_.contains(array.get())) each->read_.note(array, reader, shape);
}

void StepRehearsal::note_watched(const RefCounted* array) {
  for (StepRehearsal* each = this; each; each = each->outer_) each->read_.note_watched(array);
}

void StepRehearsal::let_go() {
  std::erase_if(at_end_, [](const AtEnd& each) { return !each.object.is_wanted(); });
}

void StepRehearsal::end() {
  for (const AtEnd& each : at_end_) each.action();
  at_end_.clear();
}

void StepRehearsal::refuse(std::string_view reason) {
  for (StepRehearsal* each = this; each; each = each->outer_)
    if (each->refusal_.empty()) each->refusal_ = reason;
}

std::string StepRehearsal::refusal() const {
  if (!refusal_.empty()) return refusal_;
  const std::string lost = read_.lost();
  if (lost.empty()) return {};
  return lost +
         " is gone when the step returns: a launch would read what the first one has read. Make "
         "what goes from call to call an input and a result";
}

}  // namespace lockstep
