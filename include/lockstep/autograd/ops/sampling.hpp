#pragma once

#include <cstdint>

#include "lockstep/core/random.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Drawing of whole numbers, and from distributions that tensors describe.

namespace lockstep {

/// Draws indices (i64), each with the probability that its weight has in the sum of its row. Rows
/// and draws are independent; a weight of 0 is never drawn.
/// @param weights one or two dimensions (rows of categories), floating, not negative, some above 0,
/// of a finite sum in f64; they need not add up to 1.
/// @param num_samples draws from each row; without replacement at most as many as there are weights
/// above 0 (a GPU, which checks no values, draws those of weight 0 after all others).
/// @throws InvalidArgument where weights are none of that, as far as shapes tell; values are
/// checked on the CPU only, for that would wait for a GPU.
Tensor multinomial(const Tensor& weights, std::int64_t num_samples, bool replacement = false,
                   Generator& generator = default_generator());

/// 1 with the probability that each element is, else 0, in the same dtype.
/// @throws InvalidArgument on the CPU for what is not in [0, 1].
Tensor bernoulli(const Tensor& probabilities, Generator& generator = default_generator());
/// Whole numbers from `low` up to, but not `high`, each as likely.
/// @throws InvalidArgument for an empty range, or one of more than 2^48 numbers, or where the dtype
/// does not hold each of them: bf16 holds every whole number up to 256, f16 to 2048, f32 to 2^24.
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape,
               TensorOptions options = {.dtype = DType::i64},
               Generator& generator = default_generator());
/// 0, 1, ... n - 1 (i64) in random order.
Tensor randperm(std::int64_t n, Device device = cpu, Generator& generator = default_generator());

/// softmax((logits + noise) / tau) along a dimension, whose largest element is that of category k
/// with the probability softmax(logits)[k] (Jang et al. 2017). With `hard` that element is 1 and
/// the others 0, and the gradient is that of the softmax.
/// @throws InvalidArgument for a tau that is not above 0.
Tensor gumbel_softmax(const Tensor& logits, double tau = 1.0, bool hard = false,
                      std::int64_t dim = -1, Generator& generator = default_generator());

}  // namespace lockstep
