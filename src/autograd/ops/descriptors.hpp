#pragma once

#include "lockstep/core/op_descriptor.hpp"

/// @file
/// The descriptors of all ops that are not elementwise, each a constant of its name.

namespace lockstep::ops {

#define LOCKSTEP_OP(name, dtypes, autocast, operands)                                    \
  inline constexpr OpDescriptor name{#name, DTypeRule::dtypes, AutocastPolicy::autocast, \
                                     OperandDTypes::operands};
#include "autograd/ops/descriptors.def"

/// All of them, in alphabetical order.
inline constexpr OpDescriptor descriptors[] = {
#define LOCKSTEP_OP(name, ...) name,
#include "autograd/ops/descriptors.def"
};

}  // namespace lockstep::ops
