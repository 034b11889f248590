#pragma once

#include <cstddef>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/intrusive_ptr.hpp"

/// @file
/// Memory that lies where a group's operations reach it best, such as that of gradient buckets.

namespace lockstep::comm {

/// A piece of it, given back with the last handle. It may outlive the group.
class Memory : public RefCounted {
 public:
  /// First byte; a multiple of the page's size.
  void* data() const { return data_; }
  /// Bytes that were asked for.
  std::size_t bytes() const { return bytes_; }

 protected:
  Memory(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

 private:
  void* data_;
  std::size_t bytes_;
};

/// Memory for buffers of a group. Operations whose buffers are there on all ranks move less data:
/// over `shm` the ranks read and write it in place. Each rank calls it for itself, from any thread;
/// where others have their buffers changes the speed, and no result. It holds zeros, or what was
/// there before.
/// @return null where the group has no such memory, or no room: any other serves.
IntrusivePtr<Memory> allocate_for(Communicator& group, std::size_t bytes);

}  // namespace lockstep::comm
