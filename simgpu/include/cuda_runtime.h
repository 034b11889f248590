#pragma once

// What nvcc lets programs use without asking for it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "cuda_runtime_api.h"
#include "simgpu/kernel_language.hpp"
#include "simgpu/launch.hpp"
#include "simgpu/launch_syntax.hpp"
#include "simgpu/memory_functions.hpp"
#include "simgpu/runtime_overloads.hpp"
#include "simgpu/variables.hpp"

/// @file
/// Stands in for the toolkit's header of the same name: the runtime's functions, CUDA C++ for a
/// plain C++ compiler, and launches.
