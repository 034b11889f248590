#include "simgpu/engine/entry.hpp"
#include "simgpu/engine/machine.hpp"

using simgpu::EntryPoint;

extern "C" {

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  static EntryPoint entry("cudaLaunchHostFunc");
  return entry.call([&] {
    if (function == nullptr) return cudaErrorInvalidValue;
    return simgpu::enqueue(
        stream, {.name = "cudaLaunchHostFunc", .site = simgpu::CallSite::here(), .run = [=] {
                   function(data);
                   return true;
                 }});
  });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned flags) {
  static EntryPoint entry("cudaStreamAddCallback", simgpu::Allowed::not_capturing);
  return entry.call([&] {
    if (callback == nullptr || flags != 0) return cudaErrorInvalidValue;
    return simgpu::enqueue(
        stream, {.name = "cudaStreamAddCallback", .site = simgpu::CallSite::here(), .run = [=] {
                   callback(stream, simgpu::Machine::instance().sticky_error, data);
                   return true;
                 }});
  });
}

}  // extern "C"
