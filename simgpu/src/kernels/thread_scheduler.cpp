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
  block_threads_ = {};
  block_threads_.started = block_threads_.finished = threads_;
  fibers_.switch_to(fibers_.take());
  if (!is_abandoned_) return;
  is_abandoned_ = false;
  fibers_.renew();
}

void ThreadScheduler::abandon() {
  is_abandoned_ = true;
  fibers_.switch_to(fibers_.own_stack());
  std::abort();  // nothing comes back to a fiber that was given up
}

void ThreadScheduler::wait(ThreadState why) {
  const unsigned self = current_;
  const uint3 place = thread_index;
  block_threads_.states[self] = why;
  block_threads_.fiber_of[self] = &fibers_.current();
  ReadyQueue& ready = block_threads_.ready;
  fibers_.switch_to(ready.empty() ? fibers_.take() : *block_threads_.fiber_of[ready.pop()]);
  current_ = self;
  thread_index = place;
}

void ThreadScheduler::make_ready(unsigned thread) {
  block_threads_.states[thread] = ThreadState::running;
  block_threads_.ready.push(thread);
}

void ThreadScheduler::yield() {
  const unsigned self = current_;
  block_threads_.spinning.push(self);
  wait(ThreadState::spinning);
  block_threads_.states[self] = ThreadState::running;
}

uint3 ThreadScheduler::index_of(unsigned thread) const {
  return {thread % block_.x, thread / block_.x % block_.y, thread / block_.x / block_.y};
}

/// The running fiber has nothing to keep.
void ThreadScheduler::leave_for(unsigned thread) {
  fibers_.give_back(fibers_.current());
  fibers_.switch_to(*block_threads_.fiber_of[thread]);
}

/// What every fiber does for ever: whatever there is to do next.
void ThreadScheduler::work() {
  BlockThreads& block = block_threads_;
  for (;;) {
    if (!block.ready.empty()) {
      leave_for(block.ready.pop());
    } else if (block.started < threads_) {
      run_next_thread();
    } else if (!block.spinning.empty() && turns_ > 0) {
      --turns_;
      leave_for(block.spinning.pop());
    } else if (!block.spinning.empty() && source_->end_meetings()) {
      continue;
    } else if (!block.spinning.empty()) {
      source_->spin();
      turns_ = block.spinning.size();
    } else if (block.finished < threads_) {
      source_->resolve_stall();
    } else if (!source_->next_block()) {
      fibers_.give_back(fibers_.current());
      fibers_.switch_to(fibers_.own_stack());
    }
  }
}

void ThreadScheduler::start_block() {
  block_threads_.started = block_threads_.finished = 0;
  block_threads_.next_index = {0, 0, 0};
  block_threads_.ready.clear();
  block_threads_.spinning.clear();
  std::fill_n(block_threads_.states.begin(), threads_, ThreadState::running);
}

void ThreadScheduler::run_next_thread() {
  const unsigned self = current_ = block_threads_.started++;
  uint3& next = block_threads_.next_index;
  thread_index = next;
  if (++next.x == block_.x) {
    next.x = 0;
    if (++next.y == block_.y) {
      next.y = 0;
      ++next.z;
    }
  }
  (*thread_)();
  block_threads_.states[self] = ThreadState::left;
  ++block_threads_.finished;
}

}  // namespace simgpu
