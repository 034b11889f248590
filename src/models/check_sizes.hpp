#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::models {

/// @throws InvalidArgument naming the first of a model's sizes that is not at least 1.
inline void check_sizes(
    std::string_view model,
    std::initializer_list<std::pair<std::string_view, std::int64_t>> names_and_sizes) {
  for (const auto& [name, size] : names_and_sizes)
    LOCKSTEP_CHECK(size >= 1, InvalidArgument, model, ": ", name, " = ", size,
                   "; all sizes must be at least 1");
}

/// @throws InvalidArgument for an epsilon of norms that is negative or no number.
inline void check_epsilon(std::string_view model, double epsilon) {
  LOCKSTEP_CHECK(std::isfinite(epsilon) && epsilon >= 0, InvalidArgument, model,
                 ": norm_eps = ", epsilon, "; it must be a number from 0 on");
}

}  // namespace lockstep::models
