#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "lockstep/core/macros.hpp"

/// @file
/// Shared ownership with the count inside the object: one word per handle, one allocation per
/// object.

namespace lockstep {

/// Base of objects owned through IntrusivePtr. The count is atomic; the object is not.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  /// Number of handles; exact only while no other thread copies one.
  std::uint32_t use_count() const noexcept { return count_.load(std::memory_order_relaxed); }
  /// Whether anyone has it but Keepers; exact as `use_count` is.
  bool is_wanted() const noexcept { return use_count() > keepers_.load(std::memory_order_relaxed); }

 protected:
  virtual ~RefCounted() = default;
  /// Called when the last handle goes; an owner with its own memory overrides it.
  virtual void destroy() noexcept { delete this; }

 private:
  template <class T>
  friend class IntrusivePtr;
  friend class Keeper;
  void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    // A sole owner needs no atomic read-modify-write: nobody else can take a handle meanwhile.
    if (count_.load(std::memory_order_acquire) == 1 ||
        count_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      destroy();
  }

  mutable std::atomic<std::uint32_t> count_{0}, keepers_{0};
};

/// Owning handle of a RefCounted object.
template <class T>
class IntrusivePtr {
 public:
  using element_type = T;

  constexpr IntrusivePtr() noexcept = default;
  /// An empty handle.
  constexpr IntrusivePtr(std::nullptr_t) noexcept {}
  /// Takes a share in an object.
  explicit IntrusivePtr(T* object) noexcept : object_(object) { retain(); }
  IntrusivePtr(const IntrusivePtr& other) noexcept : object_(other.object_) { retain(); }
  IntrusivePtr(IntrusivePtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  /// Converts from a handle of a derived class.
  template <class U>
  requires std::is_convertible_v<U*, T*> IntrusivePtr(const IntrusivePtr<U>& other)
  noexcept : IntrusivePtr(other.get()) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> IntrusivePtr(IntrusivePtr<U>&& other)
  noexcept : object_(other.detach()) {}
  ~IntrusivePtr() { reset(); }

  IntrusivePtr& operator=(IntrusivePtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }

  /// Gives up the share.
  void reset() noexcept {
    if (T* object = std::exchange(object_, nullptr)) static_cast<RefCounted*>(object)->release();
  }
  /// Gives the share to the caller, who must adopt it again.
  T* detach() noexcept { return std::exchange(object_, nullptr); }
  /// Takes over a share that `detach` gave.
  static IntrusivePtr adopt(T* object) noexcept {
    IntrusivePtr handle;
    handle.object_ = object;
    return handle;
  }

  /// The first handle of an object that no other thread knows: without an atomic operation.
  static IntrusivePtr first(T* object) noexcept {
    static_cast<const RefCounted*>(object)->count_.store(1, std::memory_order_relaxed);
    return adopt(object);
  }

  T* get() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  friend bool operator==(const IntrusivePtr& a, const IntrusivePtr& b) noexcept {
    return a.object_ == b.object_;
  }

 private:
  void retain() const noexcept {
    if (object_) static_cast<const RefCounted*>(object_)->retain();
  }
  T* object_ = nullptr;
};

/// Keeps an object as a handle does, but does not count among those who want it.
class Keeper {
 public:
  /// @param object not null. @param further handles of the same owner that do not count either,
  /// while this lives
  explicit Keeper(IntrusivePtr<RefCounted> object, std::uint32_t further = 0) noexcept
      : object_(std::move(object)), handles_(further + 1) {
    object_->keepers_.fetch_add(handles_, std::memory_order_relaxed);
  }
  Keeper(Keeper&&) noexcept = default;
  Keeper& operator=(Keeper&& other) noexcept {
    std::swap(object_, other.object_);
    std::swap(handles_, other.handles_);
    return *this;
  }
  ~Keeper() {
    if (object_) object_->keepers_.fetch_sub(handles_, std::memory_order_relaxed);
  }

  RefCounted* get() const noexcept { return object_.get(); }
  /// Whether anyone has the object but Keepers.
  bool is_wanted() const noexcept { return object_->is_wanted(); }

 private:
  IntrusivePtr<RefCounted> object_;
  std::uint32_t handles_;
};

/// Creates an object and its first handle.
template <class T, class... Args>
IntrusivePtr<T> make_intrusive(Args&&... args) {
  return IntrusivePtr<T>::first(new T(std::forward<Args>(args)...));
}

}  // namespace lockstep
