#include "engine/host_threads.hpp"

#include <atomic>
#include <unordered_map>
#include <utility>

#include "engine/interposed_pthread.hpp"
#include "simgpu/simgpu.hpp"

namespace simgpu {
namespace {

constinit std::atomic<bool> apart = false;
constinit thread_local unsigned own_locks = 0;

struct OwnClock {
  VectorClock clock;
  Component component = 0;
};

// Threads take locks until their very end, after the destructors of thread_local objects.
constinit thread_local OwnClock* own_clock = nullptr;

OwnClock& own() {
  if (own_clock == nullptr) own_clock = new OwnClock;
  return *own_clock;
}

VectorClock& shared_clock() {
  static VectorClock* const clock = new VectorClock;
  return *clock;
}

/// What was handed over at locks and other places, by their addresses. Its own lock is the real one
/// below the interposed functions. Never destroyed: threads go on while the process ends.
class Places {
 public:
  static Places& instance() {
    static Places* const all = new Places;
    return *all;
  }

  void leave(const void* place, const VectorClock& clock) {
    real_pthread().mutex_lock(&mutex_);
    clocks_[place].join(clock);
    real_pthread().mutex_unlock(&mutex_);
  }
  void take(const void* place, VectorClock& clock) {
    real_pthread().mutex_lock(&mutex_);
    if (const auto found = clocks_.find(place); found != clocks_.end()) clock.join(found->second);
    real_pthread().mutex_unlock(&mutex_);
  }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  std::unordered_map<const void*, VectorClock> clocks_;
};

bool tells() { return apart.load(std::memory_order_relaxed) && own_locks == 0; }

}  // namespace

bool host_threads_are_apart() { return apart.load(std::memory_order_relaxed); }

void set_host_threads_apart() { apart = true; }

VectorClock& host_clock() { return host_threads_are_apart() ? own().clock : shared_clock(); }

Component& host_thread_component() { return own().component; }

void follow_operation(const VectorClock& clock) {
  if (host_threads_are_apart())
    own().clock = clock;
  else
    shared_clock().join(clock);
}

OwnLocks::OwnLocks() { ++own_locks; }
OwnLocks::~OwnLocks() { --own_locks; }

ProgramLocks::ProgramLocks() : before_(std::exchange(own_locks, 0)) {}
ProgramLocks::~ProgramLocks() { own_locks = before_; }

ThreadStart::ThreadStart() {
  if (host_threads_are_apart()) clock_ = own().clock;
}

void ThreadStart::begin() const {
  if (host_threads_are_apart()) own().clock.join(clock_);
}

void ThreadStart::end(const void* place) {
  leave_clock_at(place);
  delete std::exchange(own_clock, nullptr);
}

void leave_clock_at(const void* place) {
  if (tells()) Places::instance().leave(place, own().clock);
}

void take_clock_from(const void* place) {
  if (tells()) Places::instance().take(place, own().clock);
}

void hand_over(const void* place) { leave_clock_at(place); }

void take_over(const void* place) { take_clock_from(place); }

}  // namespace simgpu
