#pragma once

#include "lockstep/core/array_view.hpp"

namespace lockstep::host {

/// out = in, converting between dtypes; shapes are equal, strides any (0 repeats an element of
/// `in`).
void copy(const ArrayView& out, const ArrayView& in);

/// out = value.
void fill(const ArrayView& out, double value);

/// Fills a contiguous array with start + i * step.
void arange(const ArrayView& out, double start, double step);

/// Keeps one triangle of the last two dimensions and zeroes the rest: `Elementwise::triangle`.
void triangle(const ArrayView& out, const ArrayView& in, bool upper, std::int64_t diagonal);

}  // namespace lockstep::host
