#pragma once

#include <memory>
#include <type_traits>
#include <utility>

/// @file
/// A non-owning reference to a callable, for parameters that are called before the call returns.

namespace lockstep {

template <class Signature>
class FunctionRef;

/// Refers to a callable without owning or allocating; valid while the callable lives.
template <class Result, class... Args>
class FunctionRef<Result(Args...)> {
 public:
  /// Refers to `callable`.
  template <class Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef>)
      FunctionRef(Callable&& callable)
  noexcept  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(
              std::forward<Args>(args)...);
        }) {}

  /// Calls it.
  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace lockstep
