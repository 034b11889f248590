#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>

#if __cplusplus >= 202002L
#include <source_location>
#endif

#include "cuda_runtime_api.h"
#include "simgpu/language.hpp"

/// @file
/// How a kernel gets onto a stream of the simulated GPU.

namespace simgpu {

/// One argument of a launch, as far as the checks can know it from its type.
struct KernelArgument {
  enum class Kind : unsigned char { read_pointer, write_pointer, value };
  const void* bytes;  ///< of the argument itself
  std::size_t size;
  Kind kind;
};

template <class T>
KernelArgument describe_argument(const T& argument) {
  using Kind = KernelArgument::Kind;
  Kind kind = Kind::value;
  if constexpr (std::is_pointer_v<T>)
    kind = std::is_const_v<std::remove_pointer_t<T>> ? Kind::read_pointer : Kind::write_pointer;
  return {&argument, sizeof(T), kind};
}

/// A kernel and its arguments.
struct KernelCall {
  void (*invoke)(const void* arguments) = nullptr;
  std::shared_ptr<const void> arguments;

  void operator()() const { invoke(arguments.get()); }
};

/// Calls a kernel as one CUDA thread does. Not watched itself: the copies come from the host.
template <class Arguments>
__attribute__((no_sanitize("thread"))) void invoke_kernel(const void* arguments) {
  (*static_cast<const Arguments*>(arguments))();
}

/// Queues a launch; `thread` runs one CUDA thread of it.
cudaError_t enqueue_launch(const cudaLaunchConfig_t& config, const void* kernel,
                           std::initializer_list<KernelArgument> arguments, KernelCall thread);

#if __cplusplus >= 202002L
/// The line that the next launch of this host thread is reported under, instead of its caller.
void set_launch_location(std::source_location where);
#endif

}  // namespace simgpu

/// Queues a kernel with the arguments converted and copied now, as the real launch does.
template <class... Expected, class... Actual>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Expected...),
                               Actual&&... arguments) {
  const auto enqueue = [config, kernel](::simgpu::remove_cvref_t<Expected>... copies) {
    const auto call = [ kernel, copies... ]() __attribute__((no_sanitize("thread"))) {
      kernel(copies...);
    };
    return ::simgpu::enqueue_launch(
        *config, reinterpret_cast<const void*>(kernel), {::simgpu::describe_argument(copies)...},
        {&::simgpu::invoke_kernel<decltype(call)>, std::make_shared<decltype(call)>(call)});
  };
  return enqueue(std::forward<Actual>(arguments)...);
}
