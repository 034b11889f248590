#pragma once

#include "lockstep/core/array_view.hpp"

namespace lockstep {

/// True if several elements of an array lie at one place, as in an expanded view.
bool has_repeated_elements(const ArrayView& view);

/// True if a write to `to` may change an element of `from` that is read for another place: the two
/// share memory, and are not the same elements in the same order. Both have one shape.
///
/// Exact but for pairs of views whose strides are so irregular that the search is given up; those
/// count as apart.
bool is_overwritten(const ArrayView& from, const ArrayView& to);

}  // namespace lockstep
