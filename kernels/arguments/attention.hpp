#pragma once

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Scaled dot-product attention, softmax(scale * q k^T + mask) v (Vaswani et al. 2017).

namespace lockstep::kernels {

/// How scores become probabilities.
struct AttentionOptions {
  double scale = 1.0;
  bool causal = false;  ///< query i sees keys 0 to i
};

/// Attention itself. A query that sees no key gives out 0 and lse -infinity, and has no gradient.
/// H is a multiple of G: query head h reads key head h / (H / G).
struct AttentionArguments {
  ArrayView out = {};  ///< [N, H, T, V]; any strides with the last one 1, as of all of rank 4
  ArrayView lse = {};  ///< [N, H, T] log-sum-exp of the scores, contiguous, statistics dtype
  ArrayView q = {};    ///< [N, H, T, D]
  ArrayView k = {};    ///< [N, G, S, D]
  ArrayView v = {};    ///< [N, G, S, V]
  /// May be absent, else broadcast to [N, H, T, S]: bool (true takes part) or the data's dtype
  /// (added).
  ArrayView mask = {};
  AttentionOptions options = {};
};

/// Gradients of attention, in the shapes of q, k and v.
struct AttentionBackwardArguments {
  ArrayView dq = {}, dk = {}, dv = {};
  ArrayView dout = {};
  ArrayView q = {}, k = {}, v = {}, out = {}, lse = {}, mask = {};  ///< as in forward
  AttentionOptions options = {};
};

}  // namespace lockstep::kernels

/// Attention of one backend. Work runs in the order of the stream.
#define LOCKSTEP_ATTENTION_KERNELS(KERNEL) \
  KERNEL(forward, AttentionArguments)      \
  KERNEL(backward, AttentionBackwardArguments)
LOCKSTEP_KERNEL_FAMILY(attention, AttentionKernels, LOCKSTEP_ATTENTION_KERNELS)
