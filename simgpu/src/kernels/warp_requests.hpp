#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kernels/memory_access.hpp"

/// @file
/// What the accesses of a warp's threads cost together.

namespace simgpu {

/// Requests of warps to memory. The least of sectors is what the bytes of a request need if they
/// lie side by side; that of wavefronts has no two threads at different words of one bank.
struct RequestCounts {
  std::uint64_t requests = 0, sectors = 0, ideal_sectors = 0;  ///< to device memory, 32 bytes each
  std::uint64_t shared_wavefronts = 0, ideal_shared_wavefronts = 0;
  std::uint64_t atomics = 0;  ///< of threads, to memory of any kind

  RequestCounts& operator+=(const RequestCounts& other);
};

/// Puts accesses of single threads together into requests: the n-th that each thread of a warp
/// makes at one place of the code are one. Threads that leave a loop early make that an estimate.
/// KernelRunner thread.
class WarpRequests {
 public:
  /// A launch begins. @param is_counted false: none of its accesses is noted.
  void begin_launch(bool is_counted);
  /// A block begins; of a launch the first ones are noted.
  void begin_block();
  /// The last block has ended.
  void end_launch() { end_block(); }
  /// Whether the block that runs is noted.
  bool are_noted() const { return is_noted_; }

  /// An access by a thread of the block, numbered from 0; atomics are no requests.
  void note_global(unsigned thread, const MemoryAccess& access);
  void note_shared(unsigned thread, const MemoryAccess& access);

  /// Of the blocks that were noted, and how many these are.
  const RequestCounts& counts() const { return counts_; }
  std::uint64_t blocks() const { return blocks_; }

 private:
  static constexpr unsigned lanes = 32;
  struct Piece {
    std::uintptr_t address;
    unsigned bytes, lane;
  };
  using Request = std::vector<Piece>;
  /// A place of the code, as a warp has come to it.
  struct Place {
    std::array<std::uint32_t, lanes> times{};
    std::vector<Request> requests;
  };
  /// An access that others may be a part of.
  struct Open {
    std::uintptr_t address = 0;  ///< of the 16 bytes
    unsigned bytes = 0;          ///< a bit for each
    AccessKind kind = AccessKind::read;
    std::vector<const void*> places;
    Place* place = nullptr;
    std::size_t time = 0, piece = 0;
  };
  /// The last ones of a thread.
  struct Lane {
    std::array<Open, 8> open;
    std::size_t next = 0;
  };
  struct Warp {
    std::unordered_map<const void*, Place> places;
    std::array<Lane, lanes> lane;
  };

  static bool joins(Lane& lane, const MemoryAccess& access);
  void note(std::vector<Warp>& warps, unsigned thread, const MemoryAccess& access);
  void end_block();
  static RequestCounts global_counts(Request& request);
  static RequestCounts shared_counts(const Request& request);

  std::vector<Warp> global_, shared_;
  RequestCounts counts_;
  std::uint64_t blocks_ = 0, noted_ = 0, left_out_ = 0;
  bool is_counted_ = false, is_noted_ = false;
};

}  // namespace simgpu
