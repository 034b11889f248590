#pragma once

#include <cstddef>
#include <cstdint>

/// @file
/// Attention that cuDNN is known to get wrong, or to read out of bounds in.

namespace lockstep::backend::cudnn {

/// What is asked of cuDNN's fused attention.
struct AttentionCase {
  std::size_t version = 0;  ///< of cuDNN, as it tells: 91900 is 9.19.0
  int sm_version = 0;       ///< 90 for Hopper
  bool is_backward = false, is_captured = false, is_causal = false, has_mask = false;
  std::int64_t queries = 0, keys = 0;        ///< lengths of the sequences
  std::int64_t features = 0, of_values = 0;  ///< of a head: of queries and keys, of values
};

/// Whether it is to be composed of products and a softmax instead. From NVIDIA's trackers; none of
/// it was seen here:
/// - 9.10.0 and 9.10.1: attention in 16 bits (TransformerEngine refuses these);
/// - up to 9.15.0, in CUDA graphs, keys that are no multiple of 128: illegal accesses (likewise);
/// - Hopper, backward, queries and values of heads of different sizes from 128 on, but for 192 and
///   128, from 9.11 on (likewise);
/// - Hopper, backward, keys of 64 modulo 128: before 9.26 the end of the last tile counts as a
/// score
///   of 0, which is infinity beside scores below -88.7, and the gradient of queries NaN
///   (cudnn-frontend 628, PyTorch 196678). Causal attention without a mask is right;
/// - Hopper, backward, one query: NaN for such scores, in 9.25 and 9.26 too (cudnn-frontend 1072).
inline bool has_known_fault(const AttentionCase& asked) {
  if (asked.version / 2 == 91000 / 2) return true;
  if (asked.is_captured && asked.version <= 91500 && asked.keys % 128 != 0) return true;
  if (!asked.is_backward || asked.sm_version != 90) return false;
  const bool differ = asked.features != asked.of_values && asked.features >= 128 &&
                      asked.of_values >= 128 && !(asked.features == 192 && asked.of_values == 128);
  if (differ && asked.version >= 91100) return true;
  if (asked.is_causal && !asked.has_mask) return false;
  return asked.queries == 1 || (asked.version < 92600 && asked.keys % 128 == 64);
}

}  // namespace lockstep::backend::cudnn
