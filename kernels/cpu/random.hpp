#pragma once

#include "lockstep/core/array_view.hpp"
#include "lockstep/core/philox.hpp"

namespace lockstep::host {

/// Contiguous `out`: element i draws from random word i.
void uniform(const ArrayView& out, double low, double high, PhiloxState random);
/// Contiguous `out`: elements 2i and 2i + 1 draw from words 2i and 2i + 1.
void normal(const ArrayView& out, double mean, double deviation, PhiloxState random);
/// Any strides: element i in row-major order draws from word i.
void dropout(const ArrayView& out, const ArrayView& x, double p, PhiloxState random);

}  // namespace lockstep::host
