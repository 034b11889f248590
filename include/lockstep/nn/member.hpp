#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "lockstep/nn/module.hpp"
#include "lockstep/nn/module_ptr.hpp"

/// @file
/// Members of modules that register themselves: one line declares, creates and names each.

namespace lockstep::nn {

/// A module that is a list of modules, as ModuleList.
template <class M>
concept ListOfModules = requires(const M& list, std::size_t i) {
  list[i];
  list.begin();
  list.end();
};

/// A module that has modules under names, as ModuleDict.
template <class M>
concept DictOfModules = requires(const M& dict, std::string_view name) {
  dict.at(name);
  dict.begin();
  dict.end();
};

/// A child module. Use it like a pointer to the module, or call it to run `forward`.
template <class M>
class Child {
 public:
  /// Creates the module and registers it.
  /// @param owner the module this is a member of: `this`.
  /// @param name how the owner calls it: the member's name, by custom.
  /// @param args what the module's constructor takes.
  template <class... Args>
  requires MakeableFrom<M, Args...> Child(Module* owner, std::string_view name, Args&&... args)
      : Child(owner, name, make<M>(std::forward<Args>(args)...)) {}
  /// The same from named options: {this, "conv", {.in = 3, .out = 8, .kernel = 3}}.
  template <class Same = M>
  requires HasOptions<Same> Child(Module* owner, std::string_view name,
                                  typename Same::Options options)
      : Child(owner, name, make<M>(std::move(options))) {}
  /// Registers a module that exists, and may have other owners too.
  Child(Module* owner, std::string_view name, ModulePtr<M> module) : module_(std::move(module)) {
    owner->register_module(name, module_.share());
  }
  /// A further handle of the same module.
  Child(const Child&) = default;
  Child& operator=(const Child&) = delete;

  M& operator*() const noexcept { return *module_; }
  M* operator->() const noexcept { return module_.get(); }
  /// A module of a list of modules; see ModuleList.
  decltype(auto) operator[](std::size_t i) const requires ListOfModules<M> { return (*module_)[i]; }
  /// The module of a name; see ModuleDict.
  decltype(auto) operator[](std::string_view name) const requires DictOfModules<M> {
    return module_->at(name);
  }
  /// The modules of a list of modules, or names and modules.
  auto begin() const requires(ListOfModules<M> || DictOfModules<M>) { return module_->begin(); }
  /// Where they end.
  auto end() const requires(ListOfModules<M> || DictOfModules<M>) { return module_->end(); }
  /// A handle to share the module with.
  const ModulePtr<M>& handle() const noexcept { return module_; }
  /// Calls the module's `forward`; see `call`.
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    return call(*module_, std::forward<Args>(args)...);
  }

 private:
  ModulePtr<M> module_;
};

/// A tensor that its module trains. May be undefined (a layer without bias): then it is not
/// registered.
class Parameter : public Tensor {
 public:
  /// Registers `value`, which is made to require a gradient. To share a parameter between modules,
  /// give the other module's.
  Parameter(Module* owner, std::string_view name, Tensor value)
      : Tensor(owner->register_parameter(name, std::move(value))) {}
  /// A further handle of the same tensor.
  Parameter(const Parameter&) = default;
  Parameter& operator=(const Parameter&) = delete;
};

/// A tensor that belongs to a module's state but is not trained, such as running statistics.
class Buffer : public Tensor {
 public:
  /// Registers `value`; one that is not persistent stays out of the state.
  Buffer(Module* owner, std::string_view name, Tensor value, bool persistent = true)
      : Tensor(owner->register_buffer(name, std::move(value), persistent)) {}
  /// A further handle of the same tensor.
  Buffer(const Buffer&) = default;
  Buffer& operator=(const Buffer&) = delete;
};

}  // namespace lockstep::nn
