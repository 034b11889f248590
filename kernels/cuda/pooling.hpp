#pragma once

#include <array>

#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// Pooling over [N, C, H, W]. Contracts: backend/spatial.hpp.

namespace lockstep::cuda_kernels {

/// The windows along height or width.
struct PoolAxis {
  std::int64_t in = 1;
  std::int64_t out = 1;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool adaptive = false;  ///< window i is [floor(i in / out), ceil((i + 1) in / out))
};

struct PoolWindows {
  std::array<PoolAxis, 2> axis;  ///< height, width
  bool count_padding = false;
};

void max_pool(const ArrayView& y, const ArrayView& index, const ArrayView& x,
              const PoolWindows& windows, StreamRef stream);
void max_pool_backward(const ArrayView& dx, const ArrayView& dy, const ArrayView& index,
                       const PoolWindows& windows, StreamRef stream);
void average_pool(const ArrayView& y, const ArrayView& x, const PoolWindows& windows,
                  StreamRef stream);
void average_pool_backward(const ArrayView& dx, const ArrayView& dy, const PoolWindows& windows,
                           StreamRef stream);

}  // namespace lockstep::cuda_kernels
