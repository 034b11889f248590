#pragma once

#include <span>
#include <unordered_set>

#include "lockstep/autograd/leaf.hpp"

/// @file
/// What a backward would reach.

namespace lockstep::autograd {

/// The leaves that require a gradient and that at least one of the outputs depends on.
std::unordered_set<const LeafNode*> reachable_leaves(std::span<const Tensor> outputs);

}  // namespace lockstep::autograd
