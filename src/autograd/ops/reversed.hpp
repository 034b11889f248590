#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/core/array_view.hpp"

namespace lockstep::autograd {

/// The same array read backwards along dimensions.
inline ArrayView reversed(ArrayView view, const Dims& dims) {
  std::int64_t offset = 0;
  for (const auto dim : dims) {
    const int d = static_cast<int>(dim);
    offset += (view.shape[d] - 1) * view.strides[d];
    view.strides[d] = -view.strides[d];
  }
  view.data = view.as<std::byte>() + offset * static_cast<std::int64_t>(size_of(view.dtype));
  return view;
}

}  // namespace lockstep::autograd
