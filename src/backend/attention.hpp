#pragma once

#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep::backend {

/// Options of an attention call.
struct AttentionOptions {
  double scale = 1.0;
  bool causal = false;  ///< query i sees keys 0 to i
};

/// Scaled dot-product attention, softmax(scale * q k^T + mask) v (Vaswani et al. 2017).
/// q [N, H, T, D], k [N, G, S, D], v [N, G, S, V], out [N, H, T, V], H a multiple of G (query head
/// h reads key head h / (H / G)); any strides with the last one 1. `mask` may be absent; else it is
/// broadcast to [N, H, T, S]: bool (true takes part) or the data's dtype (added). `lse` [N, H, T]
/// is contiguous, statistics dtype. A query that sees no key gives out 0 and lse -infinity, and has
/// no gradient.
class Attention {
 public:
  virtual ~Attention() = default;
  /// Writes `out` and the log-sum-exp of each query's scores.
  virtual void forward(const ArrayView& out, const ArrayView& lse, const ArrayView& q,
                       const ArrayView& k, const ArrayView& v, const ArrayView& mask,
                       AttentionOptions options, StreamRef stream) = 0;
  /// Writes dq, dk and dv (same shapes as q, k, v; any strides with the last one 1).
  virtual void backward(const ArrayView& dq, const ArrayView& dk, const ArrayView& dv,
                        const ArrayView& dout, const ArrayView& q, const ArrayView& k,
                        const ArrayView& v, const ArrayView& out, const ArrayView& lse,
                        const ArrayView& mask, AttentionOptions options, StreamRef stream) = 0;
};

}  // namespace lockstep::backend
