#pragma once

#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep::cuda_kernels {

/// Contiguous out[i] = start + i * step, any dtype but bool.
void arange(const ArrayView& out, double start, double step, StreamRef stream);

}  // namespace lockstep::cuda_kernels
