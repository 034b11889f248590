#include "lockstep/core/thread_kept.hpp"

#include <pthread.h>

namespace lockstep::detail {
namespace {

constinit thread_local ThreadKept* first_kept = nullptr;

/// Its destructors run behind those of `thread_local` objects, and not at the end of the process.
struct ThreadEnd {
  explicit ThreadEnd(void (*call)(void*)) : is_made(::pthread_key_create(&key, call) == 0) {}
  pthread_key_t key{};
  bool is_made;
};

}  // namespace

void ThreadKept::free_at_thread_end(Free free) {
  if (free_) return;
  static const ThreadEnd end(free_all);
  // What is made while all is freed begins a new list, for which the system calls once more.
  if (!first_kept && end.is_made) ::pthread_setspecific(end.key, this);
  free_ = free;
  next_ = std::exchange(first_kept, this);
}

void ThreadKept::free_all(void*) {
  while (ThreadKept* const each = first_kept) {
    first_kept = each->next_;
    std::exchange(each->free_, nullptr)(*each);
  }
}

}  // namespace lockstep::detail
