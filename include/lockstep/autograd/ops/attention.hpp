#pragma once

#include <optional>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Attention, and the rotary position embedding of its queries and keys.

namespace lockstep {

/// Options of `scaled_dot_product_attention`.
struct AttentionOptions {
  /// Broadcast to [N, H, T, S]: bool (true takes part, as in PyTorch's function of this name; its
  /// MultiheadAttention has it the other way round) or added to the scores; may be undefined.
  Tensor mask = {};
  /// Query i sees keys 0 to i.
  bool is_causal = false;
  /// Factor of the scores; 1 / sqrt(D) if not given.
  std::optional<double> scale = {};
  /// Weights are dropped out with this probability, in evaluation too: give 0 there. Draws from the
  /// calling thread's generator.
  double dropout = 0.0;
};

/// softmax(scale * q k^T + mask) v (Vaswani et al. 2017), without storing the scores. Rows that see
/// no key are 0. Any strides whose last one is 1 are taken as they are. With dropout, or a mask
/// that requires a gradient, the scores are stored, and rounded to q's dtype (mixed precision's),
/// and so are the weights: a backward needs [N, H, T, S] some two times, and memory has it three to
/// five times meanwhile.
/// @param q [N, H, T, D]. @param k [N, G, S, D]. @param v [N, G, S, V]; H is a multiple of G, and
/// query head h uses key head h / (H / G) (grouped attention).
/// @return [N, H, T, V], in memory ordered N, T, H, V (N, H, T, V where the scores are stored).
/// @throws InvalidArgument for shapes that do not fit and a dropout outside [0, 1].
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

/// The same of queries, keys and values that one product has made, side by side: in a backward
/// they come together without a copy, and their bias needs the gradients of queries alone read.
/// @param qkv [N, T, 3 * features], of each third `heads` heads. @return [N, T, features].
/// @throws InvalidArgument for a shape that does not fit and a dropout outside [0, 1].
Tensor self_attention(const Tensor& qkv, std::int64_t heads, const AttentionOptions& options = {});

/// Rotary position embedding (Su et al. 2021): turns features i and i + D / 2 of every head as one
/// point of the plane by angle i of their position, in f32 (f64 for f64) and rounded once. Any
/// strides whose last one is 1 are taken as they are: queries and keys may be parts of one product.
/// @param x [N, H, T, D], queries or keys, D even. @param cos, sin of the angles, floating, without
/// gradients, broadcast to [N, 1, T, D / 2]; mixed precision leaves them as they are.
/// @return x's shape, in memory ordered N, T, H, D.
/// @throws InvalidArgument for shapes or dtypes that do not fit, Unsupported if cos or sin requires
/// a gradient.
Tensor rotary_embedding(const Tensor& x, const Tensor& cos, const Tensor& sin);
/// The same in x's memory, not recorded. @return x.
/// @throws as above; InvalidArgument if x requires a gradient while recording is on.
Tensor& rotary_embedding_(Tensor& x, const Tensor& cos, const Tensor& sin);

}  // namespace lockstep
