#pragma once

#include <array>
#include <cstddef>

/// @file
/// The threads of a block that may go on.

namespace simgpu {

inline constexpr unsigned max_block_threads = 1024;

/// First in, first out; holds each thread of a block at most once.
class ReadyQueue {
 public:
  bool empty() const { return first_ == last_; }
  void clear() { first_ = last_ = 0; }
  std::size_t size() const { return last_ - first_; }
  void push(unsigned thread) { threads_[last_++ % max_block_threads] = thread; }
  unsigned pop() { return threads_[first_++ % max_block_threads]; }

 private:
  std::array<unsigned, max_block_threads> threads_{};
  std::size_t first_ = 0, last_ = 0;
};

}  // namespace simgpu
