#pragma once

#include "arguments/elementwise.hpp"

/// @file
/// Kernels that move elements or make them from their position.

namespace lockstep::host {

void copy(const kernels::CopyArguments& arguments, StreamRef stream);
void fill(const kernels::FillArguments& arguments, StreamRef stream);
void arange(const kernels::ArangeArguments& arguments, StreamRef stream);
void triangle(const kernels::TriangleArguments& arguments, StreamRef stream);

}  // namespace lockstep::host
