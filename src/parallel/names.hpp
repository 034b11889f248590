#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/tensor/named_tensors.hpp"

namespace lockstep::parallel {

/// Names that a message has room for.
inline constexpr std::size_t most_names = 48;

/// "weight, bias and 3 more": the names of some of the parameters.
inline std::string names_of(const NamedTensors& parameters, std::span<const std::size_t> indices,
                            std::size_t most = most_names) {
  std::string names;
  for (std::size_t i = 0; i < std::min(indices.size(), most); ++i)
    names += (i ? ", " : "") + parameters[indices[i]].first;
  if (indices.size() > most) names += detail::concat(" and ", indices.size() - most, " more");
  return names;
}

}  // namespace lockstep::parallel
