#pragma once

#include <cstdint>

#include "lockstep/core/array_view.hpp"

/// @file
/// Ops that find, order or follow positions along a dimension; the contracts of `backend::Reduce`.

namespace lockstep::host {

void arg_extreme(const ArrayView& out, const ArrayView& in, int dim, bool largest);
void cumsum(const ArrayView& out, const ArrayView& in, int dim, bool reverse);
void topk(const ArrayView& values, const ArrayView& indices, const ArrayView& in, std::int64_t k);
void gather(const ArrayView& out, const ArrayView& in, const ArrayView& index, int dim);
void scatter_add(const ArrayView& out, const ArrayView& in, const ArrayView& index, int dim);

}  // namespace lockstep::host
