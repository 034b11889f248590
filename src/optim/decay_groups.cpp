#include "lockstep/optim/decay_groups.hpp"

#include <algorithm>

namespace lockstep::optim {

ParameterMask with_dimensions(std::int64_t least) {
  return [least](std::string_view, const Tensor& parameter) { return parameter.dim() >= least; };
}

ParameterMask with_name(std::vector<std::string> parts) {
  return [parts = std::move(parts)](std::string_view name, const Tensor&) {
    return std::ranges::any_of(
        parts, [name](const std::string& part) { return name.find(part) != name.npos; });
  };
}

ParameterMask without(ParameterMask mask) {
  return [mask = std::move(mask)](std::string_view name, const Tensor& parameter) {
    return !mask(name, parameter);
  };
}

SplitParameters split_parameters(const ParameterList& parameters, const ParameterMask& mask) {
  SplitParameters split;
  for (const auto& [name, parameter] : parameters.entries())
    (mask(name, parameter) ? split.chosen : split.others).emplace_back(name, parameter);
  return split;
}

}  // namespace lockstep::optim
