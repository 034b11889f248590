#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/shm/heap.hpp"
#include "comm/shm/memory_file.hpp"
#include "comm/signature.hpp"

namespace lockstep::comm::shm {

/// A counter in shared memory on which threads of any process may sleep (see waiting.hpp).
struct Signal {
  std::atomic<std::uint32_t> value{0};
  std::atomic<std::uint32_t> sleepers{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// What tells two collectives apart, in few bytes; see Signature::agrees_with.
struct Digest {
  std::uint64_t call = 0;   ///< of all but the label
  std::uint64_t label = 0;  ///< 0: none
  double factor = 1.0;      ///< of a scaled sum
};

/// Memory that all ranks of one group map. The ranks go through it in steps: in each, a rank writes
/// into its own place, says so, waits for the others, and reads theirs. Two places of each kind
/// take turns, so that who is a step ahead spoils nothing.
class Window {
 public:
  static constexpr std::size_t stage_bytes = 256 << 10;
  static constexpr int slots = 2;  ///< pieces that lie in a mailbox at once

  /// What one rank shows the others.
  struct Board {
    // One cache line: all that a small collective reads.
    alignas(64) Signal steps;  ///< how many it has come to
    std::atomic<std::uint64_t> collectives{
        0};  ///< those before the last one that it came to, and it
    Digest digests[2];
    alignas(64) std::uint64_t places[2];  ///< of buffers in its part of the heap; 0: elsewhere
    bool maps_heap = false;               ///< it has the address space for all parts
    alignas(64) Signal bell;              ///< rung when a mailbox of this rank's has changed
    alignas(64) Signature signatures[2];
    std::uint64_t cores[16] = {};  ///< that it may run on
  };
  /// A piece of a message; the signature comes with the first one.
  struct Piece {
    Signature signature;
    std::uint64_t place = 0;  ///< in the sender's order: how many collectives came before
    std::uint64_t size = 0;
    std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
  };
  /// Messages from one rank to another, in pieces.
  struct Mailbox {
    alignas(64) std::atomic<std::uint32_t> written{0};
    alignas(64) std::atomic<std::uint32_t> taken{0};
  };

  /// Makes a window for a number of ranks; `address` then leads the other ranks to it.
  explicit Window(int ranks);
  /// Opens another rank's.
  Window(int ranks, const std::string& address);
  /// Takes this rank's part of the memory, and says that it lives. Before anything else.
  /// @throws Unsupported where there is too little
  void enter(int rank);

  std::string address() const { return file_.address() + ' ' + std::to_string(heap_bytes_); }
  int ranks() const { return ranks_; }
  Board& board(int rank) const;
  /// Data that a rank shows in a step.
  std::byte* stage(int rank, std::uint32_t step) const;
  Mailbox& mailbox(int from, int to) const;
  Piece& piece(int from, int to, std::uint32_t number) const;
  /// Bytes of a message that a piece holds.
  std::size_t piece_bytes() const;
  /// Memory for buffers, for ranks that have entered; null where a rank cannot map it.
  Heap* heap() const;
  /// False once the rank, which has entered, has died or left.
  bool is_there(int rank) const { return file_.is_held(rank); }
  /// True if the ranks are more than the cores that they may run on.
  bool is_crowded() const;

  /// Keeps the first reason.
  void abort(const std::string& reason) noexcept;
  /// The reason of an abort, or null.
  const char* abort_reason() const;

 private:
  struct Head;
  bool open_heap(int rank);
  Head& head() const;
  std::byte* area(int rank) const;
  std::size_t mailbox_bytes() const;
  std::size_t area_bytes() const;
  std::size_t bytes() const;
  std::size_t all_heap_bytes() const { return static_cast<std::size_t>(ranks_) * heap_bytes_; }

  int ranks_;
  std::size_t heap_bytes_;  // of each rank's part
  std::size_t area_bytes_;  // of each rank's area, which every access needs
  MemoryFile file_;
  std::shared_ptr<Heap> heap_;
};

}  // namespace lockstep::comm::shm
