#pragma once

#include "simgpu/kernel_language.hpp"

/// @file
/// Stands in for the toolkit's header of the same name: threadIdx and its like.
