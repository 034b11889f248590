#pragma once

#include <cstdint>

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Embedding look-up in a contiguous table [entries, columns].

namespace lockstep::kernels {

/// out[i] = table[index[i]] + addend[i % m]. @throws InvalidArgument for an index out of range
/// (CPU); on a GPU the row is NaN.
struct EmbeddingArguments {
  ArrayView out = {};  ///< [n, columns]
  ArrayView table = {};
  ArrayView index = {};   ///< i64 [n]
  ArrayView addend = {};  ///< [m, columns] of the table's dtype, m a divisor of n; may be absent
};

/// dtable[index[i]] += dy[i], except where index[i] == padding_index. The order of additions to a
/// row is fixed.
struct EmbeddingBackwardArguments {
  ArrayView dtable = {}, dy = {}, index = {};
  std::int64_t padding_index = -1;
  bool accumulate = false;  ///< else dtable is zeroed first
};

}  // namespace lockstep::kernels

/// Embedding of one backend. Work runs in the order of the stream.
#define LOCKSTEP_EMBEDDING_KERNELS(KERNEL) \
  KERNEL(forward, EmbeddingArguments)      \
  KERNEL(backward, EmbeddingBackwardArguments)
LOCKSTEP_KERNEL_FAMILY(embedding, EmbeddingKernels, LOCKSTEP_EMBEDDING_KERNELS)
