#pragma once

#include "lockstep/core/op_descriptor.hpp"

/// @file
/// How a source describes the ops that it defines.

/// The descriptor `ops::NAME` of an op that is not elementwise (those are in functional/ops.def): a
/// line at the top of its source, in namespace lockstep.
///   name      as users call it, in messages and in traces
///   dtypes    any, numeric or floating
///   autocast  follow, lower_precision, f32 or widest
///   operands  same dtype, or each its own
#define LOCKSTEP_OP(name, dtypes, autocast, operands)                             \
  namespace ops {                                                                 \
  constexpr OpDescriptor name{#name, DTypeRule::dtypes, AutocastPolicy::autocast, \
                              OperandDTypes::operands};                           \
  }
