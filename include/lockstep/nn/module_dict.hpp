#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/nn/module_ptr.hpp"

/// @file
/// Modules of one type by name.

namespace lockstep::nn {

/// Modules of one type (or derived from one) under names, in the order in which they were inserted,
/// and used by their owner as it likes:
///
///     nn::Child<nn::ModuleDict<nn::Linear>> heads(this, "heads");
///     heads->insert("price", nn::make<nn::Linear>(width, 1));
///     ... heads["price"](features)
template <class M>
class ModuleDict : public Module {
 public:
  using Entry = std::pair<std::string, ModulePtr<M>>;

  /// Without modules.
  ModuleDict() = default;
  /// With these. @throws as `insert`.
  explicit ModuleDict(const std::vector<Entry>& modules) {
    for (const auto& [name, module] : modules) insert(name, module);
  }

  /// Adds a module. @throws InvalidArgument for a name that is taken, empty or has a dot.
  void insert(const std::string& name, ModulePtr<M> module) {
    register_module(name, module.share());
    modules_.emplace_back(name, std::move(module));
  }
  /// Whether there is a module of that name.
  bool contains(std::string_view name) const noexcept { return find(name) != modules_.end(); }
  /// The module of a name, to call, use or share. @throws InvalidArgument for a name that none has.
  const ModulePtr<M>& at(std::string_view name) const {
    const auto found = find(name);
    LOCKSTEP_CHECK(found != modules_.end(), InvalidArgument, "there is no module \"", name,
                   "\" among ", names());
    return found->second;
  }
  /// The same.
  const ModulePtr<M>& operator[](std::string_view name) const { return at(name); }
  std::size_t size() const noexcept { return modules_.size(); }
  auto begin() const noexcept { return modules_.begin(); }
  auto end() const noexcept { return modules_.end(); }

 private:
  auto find(std::string_view name) const noexcept {
    return std::find_if(modules_.begin(), modules_.end(),
                        [name](const Entry& entry) { return entry.first == name; });
  }
  std::string names() const {
    std::string all;
    for (const Entry& entry : modules_) all.append(all.empty() ? "" : ", ").append(entry.first);
    return all.empty() ? "no modules" : all;
  }

  std::vector<Entry> modules_;
};

}  // namespace lockstep::nn
