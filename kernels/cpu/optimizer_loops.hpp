#pragma once

#include <cstdint>

#include "functional/compact_state.hpp"
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

/// To and from states of few bits. Arrays begin at a multiple of `state_block` elements; `first` is
/// the place of the first of them in its tensor.
struct CompactLoops {
  void (*load_codes)(float* to, const std::uint8_t* codes, const float* scales, std::int64_t n,
                     bool nonnegative) = nullptr;
  void (*store_codes)(std::uint8_t* codes, float* scales, const float* from, std::int64_t n,
                      bool nonnegative, const PhiloxState& draw, std::int64_t first) = nullptr;
  void (*store_bf16)(BFloat16* to, const float* from, std::int64_t n, const PhiloxState& draw,
                     std::int64_t first) = nullptr;
};

/// The loops of all optimizers for one instruction set.
struct OptimizerTable {
  CompactLoops compact = {};
#define LOCKSTEP_OPTIMIZER(name, Rule) OptimizerLoops<Rule> name = {};
  LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
#define LOCKSTEP_OPTIMIZER(name, Rule) MeasureLoop<Rule> name##_measure[2] = {};
  LOCKSTEP_LAYERWISE_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
};

}  // namespace lockstep::cpu_kernels
