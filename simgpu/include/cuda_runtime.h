#pragma once

#include "cuda_runtime_api.h"
#include "simgpu/kernel_language.hpp"
#include "simgpu/launch.hpp"

/// @file
/// Stands in for the toolkit's header of the same name: the runtime's functions, CUDA C++ for a
/// plain C++ compiler, and launches.
