#pragma once

#include <optional>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Attention.

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
};

/// softmax(scale * q k^T + mask) v (Vaswani et al. 2017), without storing the scores. Rows that see
/// no key are 0. Any strides whose last one is 1 are taken as they are.
/// @param q [N, H, T, D]. @param k [N, G, S, D]. @param v [N, G, S, V]; H is a multiple of G, and
/// query head h uses key head h / (H / G) (grouped attention).
/// @return [N, H, T, V], in memory ordered N, T, H, V.
/// @throws InvalidArgument for shapes that do not fit.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

}  // namespace lockstep
