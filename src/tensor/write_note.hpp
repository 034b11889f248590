#pragma once

#include "lockstep/tensor/tensor.hpp"

/// @file
/// How the library says that it writes to a tensor.

namespace lockstep {

/// Notes a write to the array of a tensor (Storage::bump_version). In a step that is captured, each
/// launch is one, too: saved tensors and casts are compared with what is there after it. Called
/// before the write, it waits for those who read the array in the background.
void note_write(const Tensor& tensor);

}  // namespace lockstep
