#pragma once

#include <cstddef>
#include <utility>

#include "simgpu/launch.hpp"

/// @file
/// What simgpu/compiler makes of kernel<<<grid, block, shared, stream>>>(arguments): a call of the
/// kernel while a LaunchConfiguration lives. The kernel finds that it is called by the host and
/// launches itself, as CUDA's own stubs do.

namespace simgpu {

/// The values between <<< and >>>, for the call of a kernel in the same expression.
class LaunchConfiguration {
 public:
  LaunchConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes = 0,
                      cudaStream_t stream = nullptr);
  LaunchConfiguration(const LaunchConfiguration&) = delete;
  LaunchConfiguration& operator=(const LaunchConfiguration&) = delete;
  /// Ends the process with a message if no kernel took it: one that was not compiled by
  /// lockstep_simulate_kernels has run on the host.
  ~LaunchConfiguration();

 private:
  std::size_t depth_;
  int exceptions_;
};

/// True where the host calls a kernel to launch it.
bool is_launching();

/// Takes the configuration that was made last.
cudaLaunchConfig_t take_launch_configuration();

/// The type of a parameter as that of its function has it: without const and __restrict.
template <class T>
T by_value(T);
template <class T>
struct ParameterOf {
  using type = decltype(by_value(std::declval<T&>()));
};
template <class T>
struct ParameterOf<T&> {
  using type = T&;
};
template <class T>
using Parameter = typename ParameterOf<T>::type;

/// Launches the kernel that asks, with its own parameters as arguments.
template <class... Parameters>
__attribute__((noinline)) void launch_kernel(type_identity_t<void (*)(Parameters...)> kernel,
                                             type_identity_t<Parameters>... parameters) {
  const cudaLaunchConfig_t configuration = take_launch_configuration();
  static_cast<void>(cudaLaunchKernelEx(&configuration, kernel, parameters...));
}

}  // namespace simgpu
