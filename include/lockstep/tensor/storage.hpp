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
  /// Memory of somebody else, which `owner` keeps alive (a mapped file, a user's buffer).
  static IntrusivePtr<Storage> borrow(void* data, std::size_t bytes, Device device,
                                      IntrusivePtr<RefCounted> owner);
  ~Storage() override;

  /// First byte.
  void* data() const noexcept { return data_; }
  /// Usable bytes.
  std::size_t bytes() const noexcept { return bytes_; }
  /// Where the memory lives.
  Device device() const noexcept { return device_; }
  /// True for page-locked host memory of lockstep's own, which GPUs copy while the host goes on.
  bool is_pinned() const noexcept { return pinned_; }
  /// Number of writes so far.
  std::uint32_t version() const noexcept { return version_; }
  /// Notes a write.
  void bump_version() noexcept { ++version_; }
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
  std::uint32_t version_ = 0;
  std::atomic<MemoryGate*> gate_{nullptr};
  Allocator* allocator_ = nullptr;
  MemoryBlock* block_ = nullptr;
  IntrusivePtr<RefCounted> owner_;
};

}  // namespace lockstep
