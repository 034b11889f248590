#pragma once

#include "lockstep/memory/allocator.hpp"

namespace lockstep::cuda_kernels {

/// Device memory for the length of one call. Returning it while the kernels that use it are still
/// queued is safe: the pool gives it out again in the order of the same stream.
class Scratch {
 public:
  Scratch(std::size_t bytes, StreamRef stream)
      : allocator_(device_allocator(stream.device)), block_(allocator_.allocate(bytes, stream)) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { allocator_.deallocate(block_); }

  /// The memory, or null for zero bytes.
  void* data() const { return block_ ? block_->data : nullptr; }

 private:
  Allocator& allocator_;
  MemoryBlock* block_;
};

}  // namespace lockstep::cuda_kernels
