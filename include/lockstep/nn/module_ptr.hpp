#pragma once

#include <concepts>
#include <cstddef>
#include <utility>

#include "lockstep/nn/module.hpp"

/// @file
/// Shared, never empty handles of modules.

namespace lockstep::nn {

/// A handle of a module: copies share it, and there is always one (moving copies).
template <class M>
class ModulePtr {
 public:
  /// Takes a share in a module. @throws InvalidArgument for an empty pointer.
  explicit ModulePtr(IntrusivePtr<M> module) : module_(std::move(module)) {
    LOCKSTEP_CHECK(module_, InvalidArgument, "a ModulePtr needs a module; create one with make()");
  }
  ModulePtr(const ModulePtr&) = default;
  ModulePtr& operator=(const ModulePtr&) = default;
  /// A handle of a base class.
  template <class Derived>
  requires(!std::same_as<Derived, M> && std::convertible_to<Derived*, M*>)
      ModulePtr(const ModulePtr<Derived>& other)
      : module_(other.share()) {}

  M* get() const noexcept { return module_.get(); }
  M& operator*() const noexcept { return *module_; }
  M* operator->() const noexcept { return module_.get(); }
  /// The share itself.
  const IntrusivePtr<M>& share() const noexcept { return module_; }
  /// Calls the module's `forward`.
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    return module_->forward(std::forward<Args>(args)...);
  }

 private:
  IntrusivePtr<M> module_;
};

/// A module whose constructor takes `M::Options`, so that a braced list can name them.
template <class M>
concept HasOptions = requires {
  typename M::Options;
}
&&std::constructible_from<M, typename M::Options>;

/// Creates a module on the heap.
template <class M, class... Args>
requires std::constructible_from<M, Args...> ModulePtr<M> make(Args&&... args) {
  return ModulePtr<M>(make_intrusive<M>(std::forward<Args>(args)...));
}
/// Creates a module from named options: make<Conv2d>({.in = 3, .out = 8, .kernel = 3}).
template <HasOptions M>
ModulePtr<M> make(typename M::Options options) {
  return ModulePtr<M>(make_intrusive<M>(std::move(options)));
}

}  // namespace lockstep::nn
