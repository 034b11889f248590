#include <functional>
#include <utility>

#include "engine/callback_threads.hpp"
#include "engine/entry.hpp"
#include "engine/machine.hpp"

namespace simgpu {
namespace {

cudaError_t call_in_order(cudaStream_t stream, const char* name, std::function<void()> function) {
  // The host may wait for the function by other means than the runtime: it goes on by itself.
  return enqueue(stream, {.name = name,
                          .site = CallSite::here(),
                          .meets_peers = true,
                          .run = on_callback_thread(std::move(function))});
}

}  // namespace
}  // namespace simgpu

using simgpu::EntryPoint;

extern "C" {

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  static EntryPoint entry("cudaLaunchHostFunc");
  return entry.call([&] {
    if (function == nullptr) return cudaErrorInvalidValue;
    return simgpu::call_in_order(stream, "cudaLaunchHostFunc", [=] { function(data); });
  });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned flags) {
  static EntryPoint entry("cudaStreamAddCallback", simgpu::Allowed::not_capturing);
  return entry.call([&] {
    if (callback == nullptr || flags != 0) return cudaErrorInvalidValue;
    return simgpu::call_in_order(stream, "cudaStreamAddCallback", [=] {
      callback(stream, simgpu::Machine::instance().sticky_error, data);
    });
  });
}

}  // extern "C"
