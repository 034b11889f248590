#pragma once

#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "lockstep/core/error.hpp"

/// @file
/// Checks of options that optimizers share.

namespace lockstep::optim {

using NamedNumbers = std::initializer_list<std::pair<std::string_view, double>>;

/// @throws InvalidArgument for a number below 0, or one that is not finite.
inline void check_not_negative(std::string_view optimizer, NamedNumbers options) {
  for (const auto& [name, value] : options)
    LOCKSTEP_CHECK(value >= 0 && std::isfinite(value), InvalidArgument, optimizer, ": ", name,
                   " is ", value, "; it must be a finite number from 0 on");
}

/// @throws InvalidArgument for a rate of decay that would forget nothing, or diverge.
inline void check_decay_rates(std::string_view optimizer, NamedNumbers options) {
  for (const auto& [name, value] : options)
    LOCKSTEP_CHECK(value >= 0 && value < 1, InvalidArgument, optimizer, ": ", name, " is ", value,
                   "; it must be in [0, 1)");
}

/// @throws InvalidArgument for stochastic rounding of parameters that are rounded from copies.
inline void check_rounding(std::string_view optimizer, bool stochastic, bool master_weights) {
  LOCKSTEP_CHECK(!stochastic || !master_weights, InvalidArgument, optimizer,
                 ": stochastic_rounding is for parameters without master weights, which keep small "
                 "steps themselves; set master_weights = false");
}

}  // namespace lockstep::optim
