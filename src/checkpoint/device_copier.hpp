#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "lockstep/core/intrusive_ptr.hpp"
#include "lockstep/runtime/event.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/storage.hpp"

/// @file
/// Copies from a GPU that do not hold up what it computes.

namespace lockstep::checkpoint {

/// Copies a device's memory to the host on a stream of its own, through two blocks of pinned
/// memory: while one is emptied the other is filled. One thread at a time.
class DeviceCopier {
 public:
  /// @throws OutOfMemory.
  explicit DeviceCopier(Device device);
  DeviceCopier(const DeviceCopier&) = delete;
  DeviceCopier& operator=(const DeviceCopier&) = delete;
  /// Waits for what a copy that threw has left.
  ~DeviceCopier();

  /// What is copied from now on is as the work that a stream has now leaves it.
  void follow(StreamRef stream);
  /// Returns when all is there. @param from memory of the device.
  void copy(const std::byte* from, std::span<std::byte> to);

 private:
  struct Block {
    IntrusivePtr<Storage> memory;
    Event filled;
    std::span<std::byte> to;  // where its bytes belong; empty if it has none
  };
  void empty(Block& block);

  Stream stream_;
  std::array<Block, 2> blocks_;
};

}  // namespace lockstep::checkpoint
