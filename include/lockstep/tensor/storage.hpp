#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lockstep/core/device.hpp"
#include "lockstep/core/intrusive_ptr.hpp"
#include "lockstep/core/slab.hpp"
#include "lockstep/memory/allocator.hpp"

/// @file
/// The memory that a tensor and all its views share.

namespace lockstep {

class MemoryGate;

/// A piece of device memory with its owner. Every write through a tensor bumps `version`, so that
/// backward notices when a value it saved has changed.
class Storage final : public RefCounted, public SlabAllocated {
 public:
  /// Memory from the device's pool, for use on the device's current stream.
  /// @throws OutOfMemory.
  static IntrusivePtr<Storage> allocate(std::size_t bytes, Device device);
  /// Page-locked host memory. @throws Unsupported without a GPU, OutOfMemory.
  static IntrusivePtr<Storage> allocate_pinned(std::size_t bytes);
  /// Memory of somebody else, which `owner` keeps alive (a mapped file, a user's buffer). An owner
  /// that is a Storage hears of other streams; writes are counted apart.
  static IntrusivePtr<Storage> borrow(void* data, std::size_t bytes, Device device,
                                      IntrusivePtr<RefCounted> owner);
  /// A range of another's memory, with a gate of its own. What is written to either is written to
  /// both, and counted in `version` of both.
  static IntrusivePtr<Storage> part_of(IntrusivePtr<Storage> whole, void* data, std::size_t bytes);
  ~Storage() override;

  /// First byte.
  void* data() const noexcept { return data_; }
  /// Usable bytes.
  std::size_t bytes() const noexcept { return bytes_; }
  /// Where the memory lives.
  Device device() const noexcept { return device_; }
  /// False for memory of somebody else, or a range of another's, and where there is none.
  bool owns_memory() const noexcept { return block_ != nullptr; }
  /// The array that owns the memory, which this may be a part of; null where somebody else does, or
  /// there is none.
  Storage* owner() noexcept;
  /// True for page-locked host memory of lockstep's own, which GPUs copy while the host goes on.
  bool is_pinned() const noexcept { return pinned_; }
  /// Another number after each write.
  std::uint32_t version() const noexcept {
    if (whole_) [[unlikely]]
      return writes_ + whole_->version();
    return writes_;
  }
  /// Number of writes that were noted here, not those to what this is a part of.
  std::uint32_t writes() const noexcept { return writes_; }
  /// Notes a write.
  void bump_version() noexcept {
    ++writes_;
    if (whole_) [[unlikely]]
      whole_->bump_version();
  }
  /// True if the memory holds, or has held, the gradient of a leaf: a backward writes there while
  /// it runs.
  bool holds_gradient() const noexcept { return holds_gradient_; }
  /// Notes that the memory holds the gradient of a leaf.
  void set_holds_gradient() noexcept { holds_gradient_ = true; }
  /// What is to be asked before the memory is used; null for most. See MemoryGate.
  MemoryGate* gate() const noexcept { return gate_.load(std::memory_order_acquire); }
  /// Puts a gate there, which must stay until it is taken away with null. What lies in the memory
  /// then is seen by whoever finds no gate.
  void set_gate(MemoryGate* gate) noexcept { gate_.store(gate, std::memory_order_release); }
  /// Declares a use on a stream other than the one the memory was allocated on; for pinned memory:
  /// on any stream.
  void record_stream(StreamRef stream);

 private:
  Storage() = default;
  void destroy() noexcept override { delete this; }

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
  bool pinned_ = false;
  bool holds_gradient_ = false;
  std::uint32_t writes_ = 0;
  std::atomic<MemoryGate*> gate_{nullptr};
  Allocator* allocator_ = nullptr;
  MemoryBlock* block_ = nullptr;
  Storage* whole_ = nullptr;  // of which this is a part: the owner
  IntrusivePtr<RefCounted> owner_;
};

}  // namespace lockstep
