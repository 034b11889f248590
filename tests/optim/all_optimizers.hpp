#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/optim/optim.hpp"

/// @file
/// The list of all optimizers, over which tests of what they have in common run.

namespace lockstep::testing {

/// Several parameter lists, each with options as JSON by name: what a group is made of.
using JsonGroups = std::vector<std::pair<optim::ParameterList, nlohmann::json>>;

/// An optimizer that is made from options as JSON, by their names or PyTorch's.
struct AnyOptimizer {
  std::string name;
  nlohmann::json options;  ///< with which it trains well in tests
  std::function<std::unique_ptr<optim::Optimizer>(const JsonGroups&)> make_groups;
  bool has_state_formats;  ///< may keep its states in few bits

  std::unique_ptr<optim::Optimizer> make(const optim::ParameterList& parameters) const {
    return make_groups({{parameters, options}});
  }
};

/// Every optimizer, and its variants that keep other states.
const std::vector<AnyOptimizer>& all_optimizers();

}  // namespace lockstep::testing
