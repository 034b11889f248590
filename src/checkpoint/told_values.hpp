#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Ranks that save something of their own under one name would each write a part of it.

namespace lockstep::checkpoint {

/// What `told_values` begins with.
inline constexpr std::string_view words_of_values = " with values of fingerprint ";

/// Words for TensorState::told by which ranks find out whether they have the same values, to the
/// bit. Of what lies on a GPU nothing is told: a save does not wait for it.
std::string told_values(std::span<const Tensor> tensors);

}  // namespace lockstep::checkpoint
