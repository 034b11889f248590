#pragma once

#include <concepts>
#include <cstddef>
#include <ostream>
#include <utility>

#include "lockstep/nn/call.hpp"
#include "lockstep/nn/construction.hpp"

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
  /// A handle of a base class, whose `forward` it calls: one that `Derived` replaces must be
  /// virtual in M.
  template <class Derived>
  requires(!std::same_as<Derived, M> && std::convertible_to<Derived*, M*>)
      ModulePtr(const ModulePtr<Derived>& other)
      : module_(other.share()) {}

  M* get() const noexcept { return module_.get(); }
  M& operator*() const noexcept { return *module_; }
  M* operator->() const noexcept { return module_.get(); }
  /// The share itself.
  const IntrusivePtr<M>& share() const noexcept { return module_; }
  /// Calls the module's `forward`; see `call`.
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    return call(*module_, std::forward<Args>(args)...);
  }

 private:
  IntrusivePtr<M> module_;
};

/// Prints the module.
template <class M>
std::ostream& operator<<(std::ostream& out, const ModulePtr<M>& module) {
  return out << *module;
}

/// A module as it is created: see Module::only_make_and_child_create_modules.
template <class M>
class Made final : public M {
 public:
  using M::M;

 private:
  void only_make_and_child_create_modules() const override {}
};

/// A module whose constructor takes `Args`.
template <class M, class... Args>
concept MakeableFrom = std::constructible_from<Made<M>, Args...>;

/// A module whose constructor takes `M::Options`, so that a braced list can name them.
template <class M>
concept HasOptions = requires {
  typename M::Options;
}
&&MakeableFrom<M, typename M::Options>;

/// Creates a module on the heap. @throws InvalidArgument if it holds a module that it has not
/// registered (see Construction).
template <class M, class... Args>
requires MakeableFrom<M, Args...> ModulePtr<M> make(Args&&... args) {
  Construction construction;
  (construction.note_if_module(args), ...);
  const ModulePtr<M> made(IntrusivePtr<M>(make_intrusive<Made<M>>(std::forward<Args>(args)...)));
  construction.finish(made.share());
  return made;
}
/// Creates a module from named options: make<Conv2d>({.in = 3, .out = 8, .kernel = 3}).
template <HasOptions M>
ModulePtr<M> make(typename M::Options options) {
  return make<M, typename M::Options>(std::move(options));
}

}  // namespace lockstep::nn
