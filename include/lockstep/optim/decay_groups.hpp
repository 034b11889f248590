#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/optim/parameter_list.hpp"

/// @file
/// Parameter groups by name or shape: which parameters decay, or are trained by other options.

namespace lockstep::optim {

/// Says of a parameter whether it is meant.
using ParameterMask = std::function<bool(std::string_view name, const Tensor& parameter)>;

/// Parameters of at least so many dimensions: 2 for weights, but for biases and norms.
ParameterMask with_dimensions(std::int64_t least);
/// Parameters whose name contains one of the texts: {"bias", "norm"}.
ParameterMask with_name(std::vector<std::string> parts);
/// Parameters that a mask does not mean.
ParameterMask without(ParameterMask mask);

/// Parameters that a mask means, and the rest of them, in their order.
struct SplitParameters {
  NamedTensors chosen, others;
};
/// Splits parameters by a mask.
SplitParameters split_parameters(const ParameterList& parameters, const ParameterMask& mask);

/// Two groups: the parameters that a mask means with `chosen` options, and the others.
template <class Options>
std::vector<ParameterGroup<Options>> groups_by(const ParameterList& parameters,
                                               const ParameterMask& mask, const Options& chosen,
                                               const Options& others) {
  SplitParameters split = split_parameters(parameters, mask);
  return {{std::move(split.chosen), chosen}, {std::move(split.others), others}};
}

/// Two groups: the parameters that a mask means with these options, and the others without weight
/// decay, and without an own rate (`adapt`) where the optimizer has them:
///
///     optim::AdamW optimizer(optim::decay_groups(model->named_parameters(),
///                                                optim::AdamWOptions{.weight_decay = 0.1}));
template <class Options>
std::vector<ParameterGroup<Options>> decay_groups(
    const ParameterList& parameters, const Options& options,
    const ParameterMask& decays = with_dimensions(2)) {
  Options others = options;
  others.weight_decay = 0.0;
  if constexpr (requires { others.adapt; }) others.adapt = false;
  return groups_by(parameters, decays, options, others);
}

}  // namespace lockstep::optim
