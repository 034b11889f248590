#pragma once

#include "cuda/layout.hpp"

namespace lockstep::cuda_kernels {

/// Lines along one dimension of K arrays: where each starts, and how its elements follow.
template <int K>
struct Lines {
  Layout<K> starts;
  std::int64_t length[K];
  std::int64_t stride[K];
};

/// @param dim the dimension that lines run along; the arrays' other extents agree.
/// @throws Unsupported for 2^31 lines and more.
template <int K>
Lines<K> lines_along(int dim, const std::array<const ArrayView*, K>& views) {
  Lines<K> lines{};
  std::array<ArrayView, K> cut;
  std::array<const ArrayView*, K> pointers;
  for (int k = 0; k < K; ++k) {
    lines.length[k] = views[k]->shape[dim];
    lines.stride[k] = views[k]->strides[dim];
    cut[k] = *views[k];
    cut[k].shape[dim] = 1;
    // Index arrays may be larger than what they index; the first array decides.
    for (int d = 0; d < cut[k].rank(); ++d) cut[k].shape[d] = d == dim ? 1 : views[0]->shape[d];
    pointers[k] = &cut[k];
  }
  const ArraySet<K> set(pointers);
  LOCKSTEP_CHECK(set.numel() < std::int64_t{1} << 31, Unsupported, "shape ", views[0]->shape,
                 " along dimension ", dim, " on device cuda: 2^31 lines or more");
  lines.starts = set.layout(1);
  return lines;
}

}  // namespace lockstep::cuda_kernels
