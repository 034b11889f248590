#include "lockstep/tensor/storage.hpp"

#include <utility>

#include "lockstep/core/error.hpp"
#include "memory/reclaimable_memory.hpp"
#include "memory/step_rehearsal.hpp"

namespace lockstep {
namespace {

MemoryBlock* block_of(Allocator& allocator, std::size_t bytes, Device device) {
  const StreamRef stream = current_stream(device);
  try {
    return allocator.allocate(bytes, stream);
  } catch (const OutOfMemory&) {
    if (!ReclaimableMemory::reclaim(device)) throw;
  }
  return allocator.allocate(bytes, stream);
}

}  // namespace

IntrusivePtr<Storage> Storage::allocate(std::size_t bytes, Device device) {
  auto storage = IntrusivePtr<Storage>::first(new Storage());
  storage->device_ = device;
  storage->bytes_ = bytes;
  if (bytes == 0) {
    // An address that is not null: null means an operand that is absent.
    alignas(64) static std::byte nothing[64];
    storage->data_ = nothing;
    return storage;
  }
  storage->allocator_ = &device_allocator(device);
  storage->block_ = block_of(*storage->allocator_, bytes, device);
  storage->data_ = storage->block_->data;
  if (StepRehearsal* const rehearsal = StepRehearsal::current()) [[unlikely]]
    rehearsal->note_made(storage.get());
  return storage;
}

IntrusivePtr<Storage> Storage::allocate_pinned(std::size_t bytes) {
  auto storage = allocate(0, cpu);
  storage->bytes_ = bytes;
  storage->pinned_ = true;
  storage->allocator_ = &pinned_allocator();
  if (bytes == 0) return storage;
  storage->block_ = storage->allocator_->allocate(bytes, {});
  storage->data_ = storage->block_->data;
  return storage;
}

IntrusivePtr<Storage> Storage::borrow(void* data, std::size_t bytes, Device device,
                                      IntrusivePtr<RefCounted> owner) {
  auto storage = IntrusivePtr<Storage>::first(new Storage());
  storage->device_ = device;
  storage->bytes_ = bytes;
  storage->data_ = data;
  storage->owner_ = std::move(owner);
  return storage;
}

IntrusivePtr<Storage> Storage::part_of(IntrusivePtr<Storage> whole, void* data, std::size_t bytes) {
  Storage* const of = whole.get();
  auto storage = borrow(data, bytes, of->device(), std::move(whole));
  storage->whole_ = of;
  return storage;
}

Storage::~Storage() {
  if (!block_) return;
  StepRehearsal* const rehearsal = StepRehearsal::current();
  if (rehearsal) [[unlikely]] {
    rehearsal->note_gone(this);
    rehearsal->give_back(*allocator_, block_, device_);
  } else {
    allocator_->deallocate(block_);
  }
}

Storage* Storage::owner() noexcept {
  Storage* owner = this;
  while (owner && !owner->block_) owner = dynamic_cast<Storage*>(owner->owner_.get());
  return owner;
}

void Storage::record_stream(StreamRef stream) {
  if (block_) allocator_->record_stream(block_, stream);
  if (auto* const owner = dynamic_cast<Storage*>(owner_.get())) owner->record_stream(stream);
}

}  // namespace lockstep
