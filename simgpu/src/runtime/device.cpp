#include "runtime/device.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

#include <unistd.h>

#include "base/first_device.hpp"
#include "base/options.hpp"
#include "engine/entry.hpp"
#include "engine/host.hpp"
#include "engine/machine.hpp"
#include "memory/peer_access.hpp"

namespace simgpu {
namespace {

thread_local int device_of_thread = 0;
std::atomic<unsigned> device_flags = cudaDeviceScheduleAuto;

// Tells this host's devices from those of others.
std::uint32_t host_hash() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return static_cast<std::uint32_t>(std::hash<std::string_view>{}(name));
}

int attribute_of(cudaDeviceAttr attribute, int visible) {
  const int device = first_device() + visible;  // as the host counts, for its address on the bus
  switch (attribute) {
#define SIMGPU_ATTRIBUTE(name, number, value) \
  case name:                                  \
    return value;
#include "simgpu/cuda_attributes.def"
#undef SIMGPU_ATTRIBUTE
  }
  static_cast<void>(device);
  return -1;
}

void fill_limits(cudaDeviceProp& to, int device) {
  const auto of = [device](cudaDeviceAttr attribute) { return attribute_of(attribute, device); };
  const auto bytes = [&](cudaDeviceAttr attribute) {
    return static_cast<std::size_t>(of(attribute));
  };
  to.sharedMemPerBlock = bytes(cudaDevAttrMaxSharedMemoryPerBlock);
  to.sharedMemPerBlockOptin = bytes(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  to.sharedMemPerMultiprocessor = bytes(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  to.reservedSharedMemPerBlock = bytes(cudaDevAttrReservedSharedMemoryPerBlock);
  to.totalConstMem = bytes(cudaDevAttrTotalConstantMemory);
  to.memPitch = bytes(cudaDevAttrMaxPitch);
  to.textureAlignment = bytes(cudaDevAttrTextureAlignment);
  to.regsPerBlock = of(cudaDevAttrMaxRegistersPerBlock);
  to.regsPerMultiprocessor = of(cudaDevAttrMaxRegistersPerMultiprocessor);
  to.warpSize = of(cudaDevAttrWarpSize);
  to.maxThreadsPerBlock = of(cudaDevAttrMaxThreadsPerBlock);
  to.maxThreadsPerMultiProcessor = of(cudaDevAttrMaxThreadsPerMultiProcessor);
  to.maxBlocksPerMultiProcessor = of(cudaDevAttrMaxBlocksPerMultiprocessor);
  const int block[] = {of(cudaDevAttrMaxBlockDimX), of(cudaDevAttrMaxBlockDimY),
                       of(cudaDevAttrMaxBlockDimZ)};
  const int grid[] = {of(cudaDevAttrMaxGridDimX), of(cudaDevAttrMaxGridDimY),
                      of(cudaDevAttrMaxGridDimZ)};
  std::copy(std::begin(block), std::end(block), to.maxThreadsDim);
  std::copy(std::begin(grid), std::end(grid), to.maxGridSize);
}

void fill_identity(cudaDeviceProp& to, int device) {
  const auto of = [device](cudaDeviceAttr attribute) { return attribute_of(attribute, device); };
  std::snprintf(to.name, sizeof to.name, "Simulated GPU (H100 limits)");
  std::snprintf(to.uuid.bytes, sizeof to.uuid.bytes, "sim-%08x-%u", host_hash(),
                static_cast<unsigned>(first_device() + device) % 100);
  to.totalGlobalMem = options().memory;
  to.major = of(cudaDevAttrComputeCapabilityMajor);
  to.minor = of(cudaDevAttrComputeCapabilityMinor);
  to.multiProcessorCount = of(cudaDevAttrMultiProcessorCount);
  to.pciBusID = of(cudaDevAttrPciBusId);
  to.l2CacheSize = of(cudaDevAttrL2CacheSize);
  to.memoryBusWidth = of(cudaDevAttrGlobalMemoryBusWidth);
  to.asyncEngineCount = of(cudaDevAttrAsyncEngineCount);
  to.concurrentKernels = of(cudaDevAttrConcurrentKernels);
  to.ECCEnabled = of(cudaDevAttrEccEnabled);
  to.canMapHostMemory = of(cudaDevAttrCanMapHostMemory);
  to.unifiedAddressing = of(cudaDevAttrUnifiedAddressing);
  to.streamPrioritiesSupported = of(cudaDevAttrStreamPrioritiesSupported);
  to.hostRegisterSupported = of(cudaDevAttrHostRegisterSupported);
  to.memoryPoolsSupported = of(cudaDevAttrMemoryPoolsSupported);
}

}  // namespace

int current_device() { return device_of_thread; }

bool exists(int device) { return device >= 0 && device < options().devices; }

int exchange_current_device(int device) { return std::exchange(device_of_thread, device); }

}  // namespace simgpu

using simgpu::Allowed;
using simgpu::EntryPoint;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  static EntryPoint entry("cudaGetDeviceCount");
  return entry.call([&] {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = simgpu::options().devices;
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
  });
}

cudaError_t cudaGetDevice(int* device) {
  static EntryPoint entry("cudaGetDevice");
  return entry.call([&] {
    if (device == nullptr) return cudaErrorInvalidValue;
    if (simgpu::options().devices == 0) return cudaErrorNoDevice;
    *device = simgpu::device_of_thread;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  static EntryPoint entry("cudaSetDevice");
  return entry.call([&] {
    if (!simgpu::exists(device)) return cudaErrorInvalidDevice;
    simgpu::device_of_thread = device;
    return cudaSuccess;
  });
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  static EntryPoint entry("cudaInitDevice");
  return entry.call([&] { return simgpu::exists(device) ? cudaSuccess : cudaErrorInvalidDevice; });
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  static EntryPoint entry("cudaSetDeviceFlags");
  return entry.call([&] {
    if ((flags & ~unsigned{cudaDeviceMask}) != 0) return cudaErrorInvalidValue;
    simgpu::device_flags = flags;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  static EntryPoint entry("cudaGetDeviceFlags");
  return entry.call([&] {
    if (flags == nullptr) return cudaErrorInvalidValue;
    *flags = simgpu::device_flags | cudaDeviceMapHost;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  static EntryPoint entry("cudaGetDeviceProperties");
  return entry.call([&] {
    if (properties == nullptr) return cudaErrorInvalidValue;
    if (!simgpu::exists(device)) return cudaErrorInvalidDevice;
    *properties = {};
    simgpu::fill_identity(*properties, device);
    simgpu::fill_limits(*properties, device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  static EntryPoint entry("cudaDeviceGetAttribute");
  return entry.call([&] {
    if (!simgpu::exists(device)) return cudaErrorInvalidDevice;
    const int found = simgpu::attribute_of(attribute, device);
    if (value == nullptr || found < 0) return cudaErrorInvalidValue;
    *value = found;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  static EntryPoint entry("cudaDeviceGetPCIBusId");
  return entry.call([&] {
    if (!simgpu::exists(device)) return cudaErrorInvalidDevice;
    if (id == nullptr || length < 13) return cudaErrorInvalidValue;
    std::snprintf(id, static_cast<std::size_t>(length), "0000:%02X:00.0",
                  static_cast<unsigned>(simgpu::first_device() + device + 1) & 0xFF);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  static EntryPoint entry("cudaDeviceGetStreamPriorityRange");
  return entry.call([&] {
    if (least != nullptr) *least = simgpu::least_priority;
    if (greatest != nullptr) *greatest = simgpu::greatest_priority;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  static EntryPoint entry("cudaDeviceSynchronize", Allowed::not_capturing);
  return entry.call([] { return simgpu::synchronize_device(simgpu::current_device()); });
}

cudaError_t cudaDriverGetVersion(int* version) {
  static EntryPoint entry("cudaDriverGetVersion");
  return entry.call([&] {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  static EntryPoint entry("cudaRuntimeGetVersion");
  return entry.call([&] {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  static EntryPoint entry("cudaDeviceCanAccessPeer");
  return entry.call([&] {
    if (can == nullptr) return cudaErrorInvalidValue;
    if (!simgpu::exists(device) || !simgpu::exists(peer)) return cudaErrorInvalidDevice;
    *can = device != peer ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  static EntryPoint entry("cudaDeviceEnablePeerAccess");
  return entry.call([&] {
    if (!simgpu::exists(peer) || peer == simgpu::current_device()) return cudaErrorInvalidDevice;
    if (flags != 0) return cudaErrorInvalidValue;
    return simgpu::set_peer_access(simgpu::current_device(), peer, true)
               ? cudaErrorPeerAccessAlreadyEnabled
               : cudaSuccess;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  static EntryPoint entry("cudaDeviceDisablePeerAccess");
  return entry.call([&] {
    if (!simgpu::exists(peer) || peer == simgpu::current_device()) return cudaErrorInvalidDevice;
    return simgpu::set_peer_access(simgpu::current_device(), peer, false)
               ? cudaSuccess
               : cudaErrorPeerAccessNotEnabled;
  });
}

}  // extern "C"
