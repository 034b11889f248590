#pragma once

#include <span>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Gradient clipping.

namespace lockstep::optim {

/// Which norm, how a model is spread over ranks for it, and what is known of it.
struct ClipGradNormOptions {
  /// p of the norm (sum of |g|^p)^(1/p), above 0. Infinity: the largest |g|. Norms other than the
  /// Euclidean are taken tensor by tensor, in an f64 copy of one at a time: once for the largest,
  /// and once more relative to it, so that powers of large and small gradients are right.
  double norm_type = 2.0;
  /// The ranks that hold different parts of the gradients: those that share out a layer's weights,
  /// or the layers. Null: each rank has all of them, as in data parallelism after backward.
  CommunicatorPtr group = nullptr;
  /// Those of the parameters that all ranks of `group` hold alike, such as norms: counted once.
  std::span<const Tensor> replicated = {};
  /// The norm where it is known, as from amp::GradScaler::unscale_: gradients are not read for it
  /// then, nor exchanged, so that shards (ZeRO) need no group, and `norm_type` does not matter. One
  /// f64 element on their device. Undefined: it is taken here.
  Tensor norm = {};
  /// Throws where the norm is nan or infinite, before any gradient is scaled by it: this waits for
  /// the device. False: as PyTorch, all gradients become nan or zero then.
  bool error_if_nonfinite = false;
};

/// Scales all gradients by one factor so that their joint norm, of all elements as one vector, is
/// at most `max_norm` (Pascanu, Mikolov and Bengio 2013). Parameters without a gradient are
/// skipped. Does not wait for a GPU.
/// @param parameters this rank's, all on one device; with a group, on the group's. Every rank of
/// the group must call this, also one that has no gradients. A parameter that is listed twice, such
/// as a weight that two modules share, has one gradient: it counts and is scaled once (PyTorch
/// counts and scales it twice).
/// @return the norm before clipping, over all ranks: an f64 scalar on that device. Squares of f32
/// and narrower gradients are added up in f32 in part, in an order that depends on shards (ZeRO).
/// @throws InvalidArgument for a negative limit, a norm_type not above 0, parameters on several
/// devices, a replicated tensor that is not among the parameters, or a known norm of another kind
/// or beside a group; Error for a norm that is not finite, with `error_if_nonfinite`: on every rank
/// of the group.
Tensor clip_grad_norm_(std::span<const Tensor> parameters, double max_norm,
                       const ClipGradNormOptions& options = {});
/// The same for a vector.
inline Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                              const ClipGradNormOptions& options = {}) {
  return clip_grad_norm_(std::span<const Tensor>(parameters), max_norm, options);
}

/// Limits each element of all gradients to [-limit, limit]. Parameters without a gradient are
/// skipped. @throws InvalidArgument for a negative limit, and for parameters of a module whose
/// gradients are shared out over ranks (ZeRO).
void clip_grad_value_(std::span<const Tensor> parameters, double limit);
/// The same for a vector.
inline void clip_grad_value_(const std::vector<Tensor>& parameters, double limit) {
  clip_grad_value_(std::span<const Tensor>(parameters), limit);
}

}  // namespace lockstep::optim
