#pragma once

#include <cstddef>
#include <span>

#include "comm/operation.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep::comm::staged {

/// Page-locked memory for the buffers that an operation has on a device.
class StagedBuffers {
 public:
  /// Puts its addresses into the place of the device's.
  StagedBuffers(Operation& operation, int rank);
  StagedBuffers(StagedBuffers&& other) noexcept;
  StagedBuffers& operator=(StagedBuffers&&) = delete;
  ~StagedBuffers();

  /// What the operation reads on the device, and what it writes to.
  std::span<const std::byte> reads() const { return {input_.on_device, input_.bytes}; }
  std::span<const std::byte> writes() const { return {output_.on_device, output_.bytes}; }
  /// Queues the copies of what the operation reads.
  void copy_in(StreamRef stream) const;
  /// Queues the copies of what it has written.
  void copy_back(StreamRef stream) const;
  /// Copies on that stream may be under way when the memory goes.
  void note_use(StreamRef stream) noexcept;

 private:
  /// Bytes that are in both places.
  struct Piece {
    std::byte* on_device = nullptr;
    std::byte* on_host = nullptr;
    std::size_t bytes = 0;
  };

  MemoryBlock* block_ = nullptr;
  Piece input_, output_;
};

}  // namespace lockstep::comm::staged
