#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "lockstep/core/intrusive_ptr.hpp"
#include "lockstep/runtime/event.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/storage.hpp"

/// @file
/// Copies from a GPU that do not hold up what it computes.

namespace lockstep::checkpoint {

/// Copies a device's memory to the host on a stream of its own: at once into memory that is pinned,
/// into other through two blocks that are, of which one is emptied while the other is filled. One
/// thread at a time.
class DeviceCopier {
 public:
  explicit DeviceCopier(Device device) : stream_(device) {}
  DeviceCopier(const DeviceCopier&) = delete;
  DeviceCopier& operator=(const DeviceCopier&) = delete;
  /// Waits for what a copy that threw has left.
  ~DeviceCopier() { drain(); }

  /// What is copied from now on is as the work that a stream has now leaves it.
  void follow(StreamRef stream);
  /// Returns when all is there. @param from memory of the device. @throws OutOfMemory.
  void copy(const std::byte* from, std::span<std::byte> to);
  /// Returns before all is there, but not before most of what was copied so earlier: where a stream
  /// has too much to do the driver holds up all threads, and others need their copies, too.
  /// @param to pinned, in one piece.
  void copy_into_pinned(const std::byte* from, std::span<std::byte> to);
  /// Returns when what was copied into pinned memory is there. @throws what the device failed with.
  void wait();
  /// Returns when nothing is copied any more.
  void drain() noexcept;

 private:
  struct Block {
    IntrusivePtr<Storage> memory;
    Event filled;
    std::span<std::byte> to;  // where its bytes belong; empty if it has none
  };
  void empty(Block& block);

  Stream stream_;
  std::size_t queued_bytes_ = 0;
  int queued_ = 0;                              // copies into pinned memory
  std::optional<std::array<Block, 2>> blocks_;  // from the first copy on that needs them
};

}  // namespace lockstep::checkpoint
