#include "cuda_runtime_api.h"
#include "engine/entry.hpp"
#include "engine/host.hpp"
#include "memory/host_memory.hpp"
#include "memory/layout.hpp"
#include "runtime/transfers.hpp"

/// @file
/// cudaMemcpy and its like.

namespace simgpu {
namespace {

bool on_device(const void* address) {
  return is_tracked(address) && slot_of(address) != Layout::pinned_slot;
}

cudaError_t check_direction(const Copy& copy, cudaMemcpyKind kind) {
  const bool from = on_device(copy.from);
  const bool to = on_device(copy.to);
  switch (kind) {
    case cudaMemcpyHostToHost: return from || to ? cudaErrorInvalidValue : cudaSuccess;
    case cudaMemcpyHostToDevice: return from || !to ? cudaErrorInvalidValue : cudaSuccess;
    case cudaMemcpyDeviceToHost: return !from || to ? cudaErrorInvalidValue : cudaSuccess;
    case cudaMemcpyDeviceToDevice: return !from || !to ? cudaErrorInvalidValue : cudaSuccess;
    case cudaMemcpyDefault: return cudaSuccess;
  }
  return cudaErrorInvalidMemcpyDirection;
}

cudaError_t check_copy(const Copy& copy, cudaMemcpyKind kind) {
  if (!copy.to || !copy.from) return cudaErrorInvalidValue;
  const bool several = copy.height > 1;
  if (several && (copy.to_pitch < copy.width || copy.from_pitch < copy.width))
    return cudaErrorInvalidPitchValue;
  return check_direction(copy, kind);
}

}  // namespace

cudaError_t copy_async(const char* name, const Copy& copy, cudaMemcpyKind kind,
                       cudaStream_t stream) {
  if (copy.bytes() == 0) return cudaSuccess;
  if (const cudaError_t status = check_copy(copy, kind); status != cudaSuccess) return status;
  const bool from_pageable = is_pageable(copy.from);
  const bool to_pageable = is_pageable(copy.to);
  // A node of a graph reads and writes the host's memory when the graph runs.
  const bool now = (from_pageable || to_pageable) && !is_capturing(stream);
  Operation operation =
      copy_operation(name, copy, from_pageable && now ? Source::read_now : Source::read_when_run);
  if (const cudaError_t status = check_ranges(operation); status != cudaSuccess) return status;
  // The driver may have to wait for room in its own pinned memory, through which it brings them.
  if (from_pageable && now) note_host_wait();
  const cudaError_t status = enqueue(stream, std::move(operation));
  return status == cudaSuccess && to_pageable && now ? await_copy(stream) : status;
}

cudaError_t copy_now(const char* name, const Copy& copy, cudaMemcpyKind kind) {
  if (copy.bytes() == 0) return cudaSuccess;
  if (const cudaError_t status = check_copy(copy, kind); status != cudaSuccess) return status;
  Operation operation = copy_operation(name, copy);
  if (const cudaError_t status = check_ranges(operation); status != cudaSuccess) return status;
  const cudaError_t status = enqueue(nullptr, std::move(operation));
  const bool wait = !on_device(copy.from) || !on_device(copy.to);
  return status == cudaSuccess && wait ? await_copy(nullptr) : status;
}

Copy contiguous(void* to, const void* from, std::size_t bytes) {
  return {.to = to, .to_pitch = bytes, .from = from, .from_pitch = bytes, .width = bytes};
}

namespace {

/// Both ends of a copy between devices must lie where the call says.
bool are_on(const void* to, int to_device, const void* from, int from_device) {
  return on_device(to) && on_device(from) && slot_of(to) == to_device &&
         slot_of(from) == from_device;
}

}  // namespace
}  // namespace simgpu

using simgpu::Allowed;
using simgpu::EntryPoint;

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  static EntryPoint entry("cudaMemcpy", Allowed::not_capturing);
  return entry.call(
      [&] { return simgpu::copy_now("cudaMemcpy", simgpu::contiguous(to, from, bytes), kind); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  static EntryPoint entry("cudaMemcpyAsync");
  return entry.call([&] {
    return simgpu::copy_async("cudaMemcpyAsync", simgpu::contiguous(to, from, bytes), kind, stream);
  });
}

cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           std::size_t bytes) {
  static EntryPoint entry("cudaMemcpyPeer", Allowed::not_capturing);
  return entry.call([&] {
    if (!simgpu::are_on(to, to_device, from, from_device)) return cudaErrorInvalidValue;
    return simgpu::copy_now("cudaMemcpyPeer", simgpu::contiguous(to, from, bytes),
                            cudaMemcpyDeviceToDevice);
  });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                std::size_t bytes, cudaStream_t stream) {
  static EntryPoint entry("cudaMemcpyPeerAsync");
  return entry.call([&] {
    if (!simgpu::are_on(to, to_device, from, from_device)) return cudaErrorInvalidValue;
    return simgpu::copy_async("cudaMemcpyPeerAsync", simgpu::contiguous(to, from, bytes),
                              cudaMemcpyDeviceToDevice, stream);
  });
}

cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                         std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  static EntryPoint entry("cudaMemcpy2D", Allowed::not_capturing);
  return entry.call([&] {
    return simgpu::copy_now("cudaMemcpy2D", {to, to_pitch, from, from_pitch, width, height}, kind);
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  static EntryPoint entry("cudaMemcpy2DAsync");
  return entry.call([&] {
    return simgpu::copy_async("cudaMemcpy2DAsync", {to, to_pitch, from, from_pitch, width, height},
                              kind, stream);
  });
}
