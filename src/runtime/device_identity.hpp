#pragma once

#include <string>

/// @file
/// Which piece of hardware a device is.

namespace lockstep {

/// The UUID of a CUDA device in hexadecimal: the same in every process that sees it, whatever its
/// index there. @throws CudaError, Unsupported in a build without CUDA.
std::string cuda_device_identity(int index);

/// Makes a CUDA device the one of this process: current for the calling thread, and what threads go
/// back to that have chosen none, where the driver would set up device 0. @throws CudaError
void set_home_cuda_device(int index);

}  // namespace lockstep
