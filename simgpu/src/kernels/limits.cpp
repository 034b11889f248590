#include "kernels/limits.hpp"

#include "kernels/function_attributes.hpp"

namespace simgpu {
namespace {

std::string extent_text(const dim3& extent) {
  return std::to_string(extent.x) + " x " + std::to_string(extent.y) + " x " +
         std::to_string(extent.z);
}

bool within(const dim3& extent, const dim3& most) {
  return extent.x >= 1 && extent.y >= 1 && extent.z >= 1 && extent.x <= most.x &&
         extent.y <= most.y && extent.z <= most.z;
}

}  // namespace

std::optional<Refusal> refusal_of(const LaunchShape& shape, const void* kernel) {
  using Limits = DeviceLimits;
  const dim3 most_blocks(Limits::grid_x, Limits::grid_y, Limits::grid_z);
  const dim3 most_threads(Limits::block_x, Limits::block_y, Limits::block_z);
  if (!within(shape.grid, most_blocks))
    return Refusal{cudaErrorInvalidConfiguration, "a grid of " + extent_text(shape.grid) +
                                                      " blocks; allowed are 1 to " +
                                                      extent_text(most_blocks)};
  if (!within(shape.block, most_threads) || shape.threads() > Limits::block_threads)
    return Refusal{cudaErrorInvalidConfiguration,
                   "blocks of " + extent_text(shape.block) + " threads; allowed are 1 to " +
                       extent_text(most_threads) + " and " + std::to_string(Limits::block_threads) +
                       " in all"};
  const std::size_t most_shared = dynamic_shared_limit(kernel);
  if (shape.shared_bytes > most_shared)
    return Refusal{cudaErrorInvalidValue, std::to_string(shape.shared_bytes) +
                                              " bytes of dynamic shared memory; " +
                                              std::to_string(most_shared) +
                                              " are allowed, more after cudaFuncSetAttribute with "
                                              "cudaFuncAttributeMaxDynamicSharedMemorySize"};
  return std::nullopt;
}

}  // namespace simgpu
