#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/nn/module_ptr.hpp"

/// @file
/// A list of modules of one type.

namespace lockstep::nn {

/// Modules of one type, named "0", "1", ... and used by their owner as it likes. Modules derived
/// from it are called by its `forward`: one that they replace must be virtual there, as that of an
/// interface of one's own is, and as no layer's here is.
template <class M>
class ModuleList : public Module {
 public:
  /// An empty list.
  ModuleList() = default;
  /// `count` modules, all made from the same arguments.
  template <class... Args>
  requires MakeableFrom<M, const Args&...>
  explicit ModuleList(std::int64_t count, const Args&... args) {
    for (std::int64_t i = 0; i < count; ++i) append(make<M>(args...));
  }

  /// Adds a module at the end.
  void append(ModulePtr<M> module) {
    register_module(std::to_string(modules_.size()), module.share());
    modules_.push_back(std::move(module));
  }
  std::size_t size() const noexcept { return modules_.size(); }
  /// The module at a position, to call, use or share. @throws InvalidArgument past the end.
  const ModulePtr<M>& operator[](std::size_t i) const {
    LOCKSTEP_CHECK(i < size(), InvalidArgument, "module ", i, " of a list of ", size());
    return modules_[i];
  }
  auto begin() const noexcept { return modules_.begin(); }
  auto end() const noexcept { return modules_.end(); }

 private:
  std::vector<ModulePtr<M>> modules_;
};

}  // namespace lockstep::nn
