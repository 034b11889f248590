#pragma once

#include "lockstep/comm/buffer.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Tensors that collectives change in place.

namespace lockstep::parallel {

/// The memory of a tensor, for a collective to write:
/// `group.all_reduce(writable_buffer(w)).wait()`. It counts as a change in place, by which backward
/// knows what it may not use any more, and an optimizer that it must take the values over into a
/// master copy; what is written through `data_ptr()` alone goes unnoticed by both.
/// @param x contiguous, on the group's device; stays alive until the collective is done.
/// @throws InvalidArgument for another layout, or a tensor that requires a gradient while recording
/// is on.
comm::Buffer writable_buffer(const Tensor& x);

}  // namespace lockstep::parallel
