#include "engine/interposed_pthread.hpp"

#include <atomic>
#include <memory>
#include <utility>

#include <dlfcn.h>
#include <semaphore.h>

#include "engine/host_threads.hpp"
#include "memory/device_side.hpp"
#include "profile/profile.hpp"

/// @file
/// In the way of the C library: what a thread knew when it let go of a lock is known to the one
/// that takes it next. Costs a test while the host's threads share a clock.

namespace simgpu {
namespace {

/// The C library's function of a name. Looked up by the first call of each, which may be long
/// before anything else of the simulated GPU runs.
template <class Function>
class Real {
 public:
  constexpr explicit Real(const char* name, const char* version = nullptr)
      : name_(name), version_(version) {}

  template <class... Arguments>
  auto operator()(Arguments... arguments) {
    return find()(arguments...);
  }
  Function* find() {
    Function* found = function_.load(std::memory_order_acquire);
    if (found == nullptr) {
      found = reinterpret_cast<Function*>(version_ != nullptr ? dlvsym(RTLD_NEXT, name_, version_)
                                                              : dlsym(RTLD_NEXT, name_));
      function_.store(found, std::memory_order_release);
    }
    return found;
  }

 private:
  const char* name_;
  const char* version_;  ///< for names that the library has in several
  std::atomic<Function*> function_ = nullptr;
};

// A call that takes what was left at the object, if it succeeded.
template <class Function, class... Arguments>
int taking(Real<Function>& real, void* object, Arguments... arguments) {
  const int status = real(arguments...);
  if (status == 0) take_clock_from(object);
  return status;
}

// A condition variable lets go of the mutex and takes it again.
template <class Function, class... Arguments>
int waiting(Real<Function>& real, pthread_mutex_t* mutex, Arguments... arguments) {
  const profile::HostClockPause is_no_work;
  leave_clock_at(mutex);
  const int status = real(arguments...);
  take_clock_from(mutex);
  return status;
}

// Where the end of a thread is left for those that join it.
const void* end_place_of(pthread_t thread) { return reinterpret_cast<const void*>(thread); }

struct NewThread {
  void* (*body)(void*);
  void* argument;
  ThreadStart start;
  bool on_device_side;  ///< the rights of the one that starts it
};

void* run_thread(void* data) {
  struct AtEnd {
    ~AtEnd() { ThreadStart::end(end_place_of(pthread_self())); }
  };
  const std::unique_ptr<NewThread> thread(static_cast<NewThread*>(data));
  thread->start.begin();
  if (thread->on_device_side) enter_device_side();
  const AtEnd at_end;
  return thread->body(thread->argument);
}

using CreateThread = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

constinit Real<int(pthread_mutex_t*)> real_lock("pthread_mutex_lock");
constinit Real<int(pthread_mutex_t*)> real_try_lock("pthread_mutex_trylock");
constinit Real<int(pthread_mutex_t*, const timespec*)> real_timed_lock("pthread_mutex_timedlock");
constinit Real<int(pthread_mutex_t*)> real_unlock("pthread_mutex_unlock");
constinit Real<int(pthread_cond_t*, pthread_mutex_t*)> real_wait("pthread_cond_wait",
                                                                 "GLIBC_2.3.2");
constinit Real<int(pthread_cond_t*, pthread_mutex_t*, const timespec*)> real_timed_wait(
    "pthread_cond_timedwait", "GLIBC_2.3.2");
constinit Real<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)> real_clock_wait(
    "pthread_cond_clockwait");
constinit Real<int(pthread_rwlock_t*)> real_read_lock("pthread_rwlock_rdlock");
constinit Real<int(pthread_rwlock_t*)> real_write_lock("pthread_rwlock_wrlock");
constinit Real<int(pthread_rwlock_t*)> real_try_read_lock("pthread_rwlock_tryrdlock");
constinit Real<int(pthread_rwlock_t*)> real_try_write_lock("pthread_rwlock_trywrlock");
constinit Real<int(pthread_rwlock_t*)> real_rw_unlock("pthread_rwlock_unlock");
constinit Real<int(sem_t*)> real_sem_post("sem_post");
constinit Real<int(sem_t*)> real_sem_wait("sem_wait");
constinit Real<int(sem_t*)> real_sem_try_wait("sem_trywait");
constinit Real<int(sem_t*, const timespec*)> real_sem_timed_wait("sem_timedwait");
constinit Real<int(pthread_once_t*, void (*)())> real_once("pthread_once");
constinit Real<CreateThread> real_create("pthread_create");
constinit Real<int(pthread_t, void**)> real_join("pthread_join");

}  // namespace

const RealPthread& real_pthread() {
  static const RealPthread functions{real_lock.find(), real_unlock.find()};
  return functions;
}

}  // namespace simgpu

using namespace simgpu;

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept { return taking(real_lock, mutex, mutex); }

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  return taking(real_try_lock, mutex, mutex);
}

int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* until) noexcept {
  return taking(real_timed_lock, mutex, mutex, until);
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  leave_clock_at(mutex);
  return real_unlock(mutex);
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  return waiting(real_wait, mutex, condition, mutex);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  return waiting(real_timed_wait, mutex, condition, mutex, until);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  return waiting(real_clock_wait, mutex, condition, mutex, clock, until);
}

int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  return taking(real_read_lock, lock, lock);
}

int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  return taking(real_write_lock, lock, lock);
}

int pthread_rwlock_tryrdlock(pthread_rwlock_t* lock) noexcept {
  return taking(real_try_read_lock, lock, lock);
}

int pthread_rwlock_trywrlock(pthread_rwlock_t* lock) noexcept {
  return taking(real_try_write_lock, lock, lock);
}

int pthread_rwlock_unlock(pthread_rwlock_t* lock) noexcept {
  leave_clock_at(lock);
  return real_rw_unlock(lock);
}

int sem_post(sem_t* semaphore) noexcept {
  leave_clock_at(semaphore);
  return real_sem_post(semaphore);
}

int sem_wait(sem_t* semaphore) { return taking(real_sem_wait, semaphore, semaphore); }

int sem_trywait(sem_t* semaphore) noexcept {
  return taking(real_sem_try_wait, semaphore, semaphore);
}

int sem_timedwait(sem_t* semaphore, const timespec* until) {
  return taking(real_sem_timed_wait, semaphore, semaphore, until);
}

// Who runs the function is not seen: each that comes by leaves what it knows, too much at worst.
int pthread_once(pthread_once_t* once, void (*body)()) {
  const int status = real_once(once, body);
  take_clock_from(once);
  leave_clock_at(once);
  return status;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) noexcept {
  auto start = std::make_unique<NewThread>(NewThread{body, argument, {}, on_device_side()});
  const int status = real_create(thread, attributes, &run_thread, start.get());
  if (status == 0) static_cast<void>(start.release());
  return status;
}

int pthread_join(pthread_t thread, void** result) {
  const int status = real_join(thread, result);
  if (status == 0) take_clock_from(end_place_of(thread));
  return status;
}

}  // extern "C"
