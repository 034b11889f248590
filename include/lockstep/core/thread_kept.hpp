#pragma once

#include <utility>

namespace lockstep::detail {

/// What a thread keeps from call to call, in `thread_local` objects without destructors: freed when
/// the thread ends, and made anew by what still runs behind that, as destructors of static objects
/// do.
class ThreadKept {
 protected:
  using Free = void (*)(ThreadKept&);

  /// Has `free` called when the thread ends, once for all calls until then.
  void free_at_thread_end(Free free) {
    if (free_) return;
    static thread_local const AtThreadEnd at_end;
    static_cast<void>(&at_end);
    free_ = free;
    next_ = std::exchange(first_, this);
  }

 private:
  struct AtThreadEnd {
    AtThreadEnd() {}
    ~AtThreadEnd() {
      while (ThreadKept* const each = first_) {
        first_ = each->next_;
        std::exchange(each->free_, nullptr)(*each);
      }
    }
  };
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
