#pragma once

#include <array>
#include <cstdint>

#include "kernels/memory_access.hpp"
#include "kernels/ready_queue.hpp"

/// @file
/// Finds threads that wait for memory to change: volatile reads and atomic operations that find the
/// same again and again.

namespace simgpu {

/// A look at memory that others may change.
struct Poll {
  std::uintptr_t address = 0;
  unsigned bytes = 0;           ///< at most 16
  const void* place = nullptr;  ///< in the kernel's code
};

/// What the threads of the block that runs look at.
class SpinWatch {
 public:
  void begin_launch();
  /// The running thread looks at memory, whose addresses are good.
  /// @param run tells its block from others, and from itself before it was left.
  /// @param traffic bytes that the launch has read and written so far.
  /// @return true if others should run, for it waits for them.
  bool poll(unsigned thread, std::uint32_t run, const Poll& poll, std::uint64_t traffic);

  /// All threads have had so many turns in vain: ever longer ones follow.
  void set_turns_in_vain(std::uint64_t turns);

  /// Looks in a row, of any thread, which found what had been there and did nothing else.
  std::uint64_t in_vain() const { return in_vain_; }
  /// Grows whenever one does not.
  std::uint64_t changes() const { return changes_; }
  /// The last look, and whose it was.
  const Poll& last() const { return last_; }
  unsigned last_thread() const { return last_thread_; }

 private:
  struct Seen {
    std::uintptr_t address = 0;
    std::uint64_t value = 0;
  };
  /// A thread's latest ones: loops may look at several flags.
  struct Polls {
    std::uint32_t run = 0;
    unsigned count = 0;
    unsigned next = 0;
    std::array<Seen, 4> seen{};
  };
  void note_work(unsigned thread, std::uint64_t traffic);

  std::array<Polls, max_block_threads> of_{};
  Poll last_;
  unsigned last_thread_ = 0;
  std::uint64_t last_traffic_ = 0;
  unsigned turn_ = 64;  ///< so often a thread finds the same before others run
  std::uint64_t in_vain_ = 0, changes_ = 0;
};

}  // namespace simgpu
