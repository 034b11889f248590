#pragma once

#include <string>
#include <vector>

#include "lockstep/core/component.hpp"

/// @file
/// Versions of the libraries of optional backends; empty where the build lacks them.

namespace lockstep::backend {

/// Version of the oneDNN in use.
std::string onednn_version();
/// Version of the cuBLASLt in use.
std::string cublaslt_version();
/// Version of the cuDNN in use.
std::string cudnn_version();

}  // namespace lockstep::backend
