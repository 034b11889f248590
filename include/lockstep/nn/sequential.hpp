#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/nn/module_ptr.hpp"

/// @file
/// Modules one after another.

namespace lockstep::nn {

/// Runs modules of any types in order, each on what the one before gave. Every one must have
/// `Tensor forward(const Tensor&)`.
class Sequential : public Module {
 public:
  /// The given modules, named "0", "1", ...
  template <class... Ms>
  explicit Sequential(const ModulePtr<Ms>&... modules) {
    (append(modules), ...);
  }

  /// Adds a module at the end, named by its position.
  template <class M>
  void append(const ModulePtr<M>& module) {
    append(std::to_string(steps_.size()), module);
  }
  /// Adds a module at the end under a name of its own.
  template <class M>
  void append(std::string_view name, const ModulePtr<M>& module) {
    register_module(name, module.share());
    steps_.push_back({module.get(), [](Module& step, const Tensor& x) -> Tensor {
                        return call(static_cast<M&>(step), x);
                      }});
  }

  /// The result of the last module; x if there is none.
  Tensor forward(const Tensor& x) const {
    Tensor value = x;
    for (const Step& step : steps_) value = step.forward(*step.module, value);
    return value;
  }

 private:
  struct Step {
    Module* module;
    Tensor (*forward)(Module&, const Tensor&);
  };
  std::vector<Step> steps_;
};

}  // namespace lockstep::nn
