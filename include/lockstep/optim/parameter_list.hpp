#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include "lockstep/tensor/named_tensors.hpp"

/// @file
/// What optimizers are made from.

namespace lockstep::optim {

/// Parameters, with their names where they are known: `module->named_parameters()` or
/// `module->parameters()`. With names, a saved optimizer state finds its parameters again whatever
/// their order; without, it goes by position.
class ParameterList {
 public:
  ParameterList() = default;
  /// Parameters with names.
  ParameterList(NamedTensors named) : entries_(std::move(named)) {}
  /// Parameters without names.
  ParameterList(const std::vector<Tensor>& parameters) {
    for (const Tensor& parameter : parameters) entries_.emplace_back("", parameter);
  }
  /// @copydoc ParameterList(const std::vector<Tensor>&)
  ParameterList(std::initializer_list<Tensor> parameters)
      : ParameterList(std::vector<Tensor>(parameters)) {}

  /// Names, empty where unknown, and parameters.
  const NamedTensors& entries() const noexcept { return entries_; }

 private:
  NamedTensors entries_;
};

/// Parameters that share options.
template <class Options>
struct ParameterGroup {
  ParameterList parameters;
  Options options = {};
};

}  // namespace lockstep::optim
