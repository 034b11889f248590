#pragma once

#include <utility>

#include <pthread.h>

namespace lockstep::detail {

/// What a thread keeps from call to call, in `thread_local` objects without destructors: freed when
/// the thread ends, behind the destructors of its other `thread_local` objects, which may still use
/// it. That of the main thread stays, for destructors of static objects.
class ThreadKept {
 protected:
  using Free = void (*)(ThreadKept&);

  /// Has `free` called when the thread ends, once for all calls until then.
  void free_at_thread_end(Free free) {
    if (free_) return;
    static const Key key;
    // What is made while all is freed begins a new list, for which the system calls once more.
    if (!first_ && key.is_made) ::pthread_setspecific(key.key, this);
    free_ = free;
    next_ = std::exchange(first_, this);
  }

 private:
  // Its destructors run behind those of `thread_local` objects.
  struct Key {
    pthread_key_t key{};
    bool is_made = ::pthread_key_create(&key, free_all) == 0;
  };
  static void free_all(void*) {
    while (ThreadKept* const each = first_) {
      first_ = each->next_;
      std::exchange(each->free_, nullptr)(*each);
    }
  }
  static inline constinit thread_local ThreadKept* first_ = nullptr;

  Free free_ = nullptr;
  ThreadKept* next_ = nullptr;
};

/// A T of each thread, made when it is first asked for; the object is `thread_local`.
template <class T>
class KeptByThread : ThreadKept {
 public:
  /// @param make makes it.
  template <class Make>
  T& get(Make&& make) {
    if (!value_) {
      value_ = new T(make());
      free_at_thread_end([](ThreadKept& kept) {
        delete std::exchange(static_cast<KeptByThread&>(kept).value_, nullptr);
      });
    }
    return *value_;
  }
  T& get() {
    return get([] { return T(); });
  }

 private:
  T* value_ = nullptr;
};

}  // namespace lockstep::detail
