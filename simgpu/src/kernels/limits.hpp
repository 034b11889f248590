#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "cuda_runtime_api.h"
#include "kernels/kernel_launch.hpp"

/// @file
/// What a launch may ask of the device, after compute capability 9.0.

namespace simgpu {

struct DeviceLimits {
  static constexpr unsigned block_threads = 1024;
  static constexpr unsigned block_x = 1024, block_y = 1024, block_z = 64;
  static constexpr unsigned grid_x = 0x7FFFFFFF, grid_y = 65535, grid_z = 65535;
  static constexpr std::size_t shared_bytes = 48 * 1024;         ///< without asking
  static constexpr std::size_t shared_bytes_optin = 227 * 1024;  ///< cudaFuncSetAttribute
  static constexpr unsigned multiprocessors = 132;
  static constexpr unsigned threads_per_multiprocessor = 2048;
  static constexpr unsigned blocks_per_multiprocessor = 32;
};

/// Why a launch is refused.
struct Refusal {
  cudaError_t status;
  std::string why;
};

/// Nothing if the device can run it. @param kernel for the dynamic shared memory that was asked
/// for.
std::optional<Refusal> refusal_of(const LaunchShape& shape, const void* kernel);

}  // namespace simgpu
