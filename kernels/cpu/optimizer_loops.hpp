#pragma once

#include <cstdint>

#include "functional/optimizer.hpp"

/// @file
/// Loops over the arrays of an optimizer.

namespace lockstep::cpu_kernels {

/// `arrays` are parameter, gradient and states.
template <class Rule>
using OptimizerLoop = void (*)(void* const* arrays, std::int64_t n,
                               const typename Rule::Coefficients& coefficients);
/// The same, which adds sums of squares to `squares[0]` and `squares[1]`.
template <class Rule>
using MeasureLoop = void (*)(void* const* arrays, std::int64_t n,
                             const typename Rule::Coefficients& coefficients, double* squares);

/// The loops of an optimizer, by accumulation type and number of states.
template <class Rule>
struct OptimizerLoops {
  OptimizerLoop<Rule> loop[2][most_optimizer_states + 1] = {};
};

/// The loops of all optimizers for one instruction set.
struct OptimizerTable {
#define LOCKSTEP_OPTIMIZER(name, Rule) OptimizerLoops<Rule> name = {};
  LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
#define LOCKSTEP_OPTIMIZER(name, Rule) MeasureLoop<Rule> name##_measure[2] = {};
  LOCKSTEP_LAYERWISE_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
};

}  // namespace lockstep::cpu_kernels
