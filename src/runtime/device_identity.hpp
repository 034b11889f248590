#pragma once

#include <string>

/// @file
/// Which piece of hardware a device is.

namespace lockstep {

/// The UUID of a CUDA device in hexadecimal: the same in every process that sees it, whatever its
/// index there. @throws CudaError, Unsupported in a build without CUDA.
std::string cuda_device_identity(int index);

}  // namespace lockstep
