#pragma once

#include "lockstep/core/array_view.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// Kernels that make values from their index. Contracts: backend/elementwise.hpp.

namespace lockstep::cuda_kernels {

void arange(const ArrayView& out, double start, double step, StreamRef stream);
void uniform(const ArrayView& out, double low, double high, PhiloxState random, StreamRef stream);
void normal(const ArrayView& out, double mean, double deviation, PhiloxState random,
            StreamRef stream);
void dropout(const ArrayView& out, const ArrayView& x, double p, PhiloxState random,
             StreamRef stream);
void triangle(const ArrayView& out, const ArrayView& in, bool upper, std::int64_t diagonal,
              StreamRef stream);

}  // namespace lockstep::cuda_kernels
