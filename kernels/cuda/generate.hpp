#pragma once

#include "arguments/elementwise.hpp"
#include "arguments/random.hpp"

/// @file
/// Kernels that make values from their index.

namespace lockstep::cuda_kernels {

void arange(const kernels::ArangeArguments& arguments, StreamRef stream);
void triangle(const kernels::TriangleArguments& arguments, StreamRef stream);
void uniform(const kernels::UniformArguments& arguments, StreamRef stream);
void normal(const kernels::NormalArguments& arguments, StreamRef stream);
void dropout(const kernels::DropoutArguments& arguments, StreamRef stream);
void set_place(const kernels::SetPlaceArguments& arguments, StreamRef stream);

}  // namespace lockstep::cuda_kernels
