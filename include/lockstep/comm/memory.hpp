#pragma once

#include <cstddef>
#include <memory>
#include <span>

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

/// A piece of memory.
struct MemoryRange {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Memory that a group's library knows, until the end of this. It must end before the memory does.
/// Its end waits on the host for what the group has under way on the device, launches of captured
/// steps among it; of a group that has failed it waits for the abort, a second at most.
class Registration {
 public:
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  virtual ~Registration() = default;

 protected:
  Registration() = default;
};

/// Bytes of which registered memory must be whole multiples, and at a multiple of which it must
/// begin, so that nothing else is registered with it; 0 where a group has no use for registration:
/// over all backends but NCCL, and where it has one rank.
std::size_t registration_granularity(Communicator& group);

/// Tells the library below a group of buffers that are used again and again, so that it reads and
/// writes them itself and copies less (user buffer registration of NCCL, from 2.19 on). No result
/// depends on it. All ranks must call it, with their pieces for the same operations, and use them
/// from their beginnings: it blocks. It registers the pieces of all ranks, or of none: NCCL does
/// not allow operations in which some ranks have registered theirs.
/// @param ranges memory of the group's device that registration_granularity lets be registered.
/// @return null where nothing is registered. Where a rank could not, rank 0 warns, once a process.
/// @throws the group's failure
std::unique_ptr<Registration> register_memory(Communicator& group,
                                              std::span<const MemoryRange> ranges);

}  // namespace lockstep::comm
