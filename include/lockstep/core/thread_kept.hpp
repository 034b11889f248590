#pragma once

#include <utility>

namespace lockstep::detail {

/// What a thread keeps from call to call, in `thread_local` objects without destructors: freed when
/// the thread ends, behind the destructors of its other `thread_local` objects, which may still use
/// it. That of the main thread stays, for destructors of static objects.
class ThreadKept {
 protected:
  using Free = void (*)(ThreadKept&);

  /// Has `free` called when the thread ends, once for all calls until then.
  void free_at_thread_end(Free free);

 private:
  static void free_all(void*);

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
