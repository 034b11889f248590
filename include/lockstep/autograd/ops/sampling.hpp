#pragma once

#include <cstdint>

#include "lockstep/core/random.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Drawing from distributions that tensors describe.

namespace lockstep {

/// Draws indices (i64), each with the probability that its weight has in the sum of its row. Rows
/// and draws are independent; a weight of 0 is never drawn.
/// @param weights one or two dimensions (rows of categories), floating, not negative, finite, some
/// above 0; they need not add up to 1.
/// @param num_samples draws from each row; without replacement at most as many as there are weights
/// above 0.
/// @throws InvalidArgument where weights are none of that, as far as shapes tell; values are
/// checked on the CPU only, for that would wait for a GPU.
Tensor multinomial(const Tensor& weights, std::int64_t num_samples, bool replacement = false,
                   Generator& generator = default_generator());

}  // namespace lockstep
