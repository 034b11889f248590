#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/shm/memory_file.hpp"
#include "lockstep/comm/memory.hpp"

namespace lockstep::comm::shm {

/// Where buffers may lie so that every rank of a group reads and writes them in place: a part of
/// the window's file for each rank, from which that rank alone allocates, and which the others map
/// once they meet memory of it. Address space is all that a part takes before.
class Heap : public std::enable_shared_from_this<Heap> {
 public:
  struct Parts {
    std::size_t begin = 0;  ///< in the file
    std::size_t bytes = 0;  ///< of each
    int count = 0;
    int own = 0;
  };

  /// @throws Unsupported where the file cannot be opened again
  Heap(const MemoryFile& file, const Parts& parts);
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  /// Memory of this rank's part, reserved. From any thread.
  /// @return null where there is no room, and after `close`
  IntrusivePtr<Memory> allocate(std::size_t bytes);
  /// After a failure, when another rank may not have heard of it: from now on no memory is given
  /// out, or back to the system.
  void close() noexcept;

  /// Tells another rank where bytes of this rank's part are.
  /// @param alone whether they must share no page with others, as `detach` wants it.
  /// @return 0 for what does not lie there
  std::uint64_t place_of(const std::byte* data, std::size_t bytes, bool alone) const;
  /// Where the place is that another rank has told. @throws OutOfMemory for want of address space
  std::byte* at(int rank, std::uint64_t place);

  /// Has bytes of this rank's, in pages of their own, lie in memory of its own at the same address,
  /// so that what others still write does not reach them; as far as memory can be had.
  void detach(std::byte* data, std::size_t bytes) noexcept;

 private:
  class Piece;
  struct Free {
    std::size_t bytes;
    bool is_reserved;
  };
  using FreeParts = std::map<std::size_t, Free>;  // by where they begin

  std::byte* map(int rank);
  bool take(std::size_t bytes, std::size_t& begin);
  void keep_more(std::size_t bytes);
  void split_off(FreeParts::iterator part, std::size_t bytes);
  void give_back(std::size_t begin, std::size_t bytes) noexcept;
  void insert(std::size_t begin, Free part);

  const Parts parts_;
  const int file_;
  mutable std::mutex mutex_;  // guards what follows
  FreeParts free_;
  std::map<std::size_t, std::size_t> given_;      // bytes asked for, by where they begin
  std::size_t taken_bytes_ = 0, most_taken_ = 0;  // given out, in whole pages; and at once so far
  std::size_t kept_bytes_ = 0, most_kept_ = 0;    // reserved, and not given out; and at most
  std::size_t returned_bytes_ = 0;                // to the system, and not wanted again so far
  bool closed_ = false;
  std::vector<std::atomic<std::byte*>> mapped_;  // by rank; written with the mutex held
};

}  // namespace lockstep::comm::shm
