#include "kernels/thread_scheduler.hpp"

#include <algorithm>
#include <cstdlib>

#include "kernels/builtins.hpp"

namespace simgpu {

uint3 thread_index{}, block_index{}, block_extent{1, 1, 1}, grid_extent{1, 1, 1};

ThreadScheduler::ThreadScheduler()
    : fibers_([](void* self) { static_cast<ThreadScheduler*>(self)->work(); }, this) {}

void ThreadScheduler::run(const KernelCall& thread, dim3 block, BlockSource& source) {
  thread_ = &thread;
  source_ = &source;
  block_ = block;
  threads_ = block.x * block.y * block.z;
  started_ = finished_ = threads_;
  fibers_.switch_to(fibers_.take());
  if (!is_abandoned_) return;
  is_abandoned_ = false;
  fibers_.renew();
  ready_ = {};
}

void ThreadScheduler::abandon() {
  is_abandoned_ = true;
  fibers_.switch_to(fibers_.own_stack());
  std::abort();  // nothing comes back to a fiber that was given up
}

void ThreadScheduler::wait(ThreadState why) {
  const unsigned self = current_;
  const uint3 place = thread_index;
  states_[self] = why;
  fiber_of_[self] = &fibers_.current();
  fibers_.switch_to(ready_.empty() ? fibers_.take() : *fiber_of_[ready_.pop()]);
  current_ = self;
  thread_index = place;
}

void ThreadScheduler::make_ready(unsigned thread) {
  states_[thread] = ThreadState::running;
  ready_.push(thread);
}

uint3 ThreadScheduler::index_of(unsigned thread) const {
  return {thread % block_.x, thread / block_.x % block_.y, thread / block_.x / block_.y};
}

/// What every fiber does for ever: whatever there is to do next.
void ThreadScheduler::work() {
  for (;;) {
    Fiber& self = fibers_.current();
    if (!ready_.empty()) {
      fibers_.give_back(self);
      fibers_.switch_to(*fiber_of_[ready_.pop()]);
    } else if (started_ < threads_) {
      run_next_thread();
    } else if (finished_ < threads_) {
      source_->resolve_stall();
    } else if (source_->next_block()) {
      start_block();
    } else {
      fibers_.give_back(self);
      fibers_.switch_to(fibers_.own_stack());
    }
  }
}

void ThreadScheduler::start_block() {
  started_ = finished_ = 0;
  next_index_ = {0, 0, 0};
  std::fill_n(states_.begin(), threads_, ThreadState::running);
}

void ThreadScheduler::run_next_thread() {
  const unsigned self = current_ = started_++;
  thread_index = next_index_;
  if (++next_index_.x == block_.x) {
    next_index_.x = 0;
    if (++next_index_.y == block_.y) {
      next_index_.y = 0;
      ++next_index_.z;
    }
  }
  (*thread_)();
  states_[self] = ThreadState::left;
  ++finished_;
}

}  // namespace simgpu
