#include "cuda_runtime_api.h"
#include "engine/device_variables.hpp"
#include "engine/entry.hpp"
#include "engine/host.hpp"
#include "runtime/transfers.hpp"

/// @file
/// Variables of the device by their names in the program.

namespace simgpu {
namespace {

/// The variable's memory on the current device, `offset` bytes in; null if it is none.
std::byte* memory_of(const void* symbol, std::size_t offset) {
  std::byte* const data = find_variable(symbol, current_device());
  return data ? data + offset : nullptr;
}

/// Calls `copy` with where the variable's bytes lie. No copy goes past its end.
/// @param wrong the direction away from where the call copies to.
template <class Copying>
cudaError_t with_variable(const void* symbol, std::size_t bytes, std::size_t offset,
                          cudaMemcpyKind kind, cudaMemcpyKind wrong, const Copying& copy) {
  if (kind == cudaMemcpyHostToHost || kind == wrong) return cudaErrorInvalidMemcpyDirection;
  std::byte* const data = memory_of(symbol, offset);
  if (!data) return cudaErrorInvalidSymbol;
  const std::size_t all = *bytes_of_variable(symbol);
  return offset > all || bytes > all - offset ? cudaErrorInvalidValue : copy(data);
}

}  // namespace
}  // namespace simgpu

using simgpu::Allowed;
using simgpu::EntryPoint;

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  static EntryPoint entry("cudaGetSymbolAddress");
  return entry.call([&] {
    if (!address) return cudaErrorInvalidValue;
    *address = simgpu::memory_of(symbol, 0);
    return *address ? cudaSuccess : cudaErrorInvalidSymbol;
  });
}

cudaError_t cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
  static EntryPoint entry("cudaGetSymbolSize");
  return entry.call([&] {
    if (!bytes) return cudaErrorInvalidValue;
    const auto found = simgpu::bytes_of_variable(symbol);
    if (!found) return cudaErrorInvalidSymbol;
    *bytes = *found;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes,
                               std::size_t offset, cudaMemcpyKind kind) {
  static EntryPoint entry("cudaMemcpyToSymbol", Allowed::not_capturing);
  return entry.call([&] {
    return simgpu::with_variable(
        symbol, bytes, offset, kind, cudaMemcpyDeviceToHost, [&](void* to) {
          return simgpu::copy_now("cudaMemcpyToSymbol", simgpu::contiguous(to, from, bytes), kind);
        });
  });
}

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, std::size_t bytes,
                                    std::size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  static EntryPoint entry("cudaMemcpyToSymbolAsync");
  return entry.call([&] {
    return simgpu::with_variable(
        symbol, bytes, offset, kind, cudaMemcpyDeviceToHost, [&](void* to) {
          return simgpu::copy_async("cudaMemcpyToSymbolAsync", simgpu::contiguous(to, from, bytes),
                                    kind, stream);
        });
  });
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes,
                                 std::size_t offset, cudaMemcpyKind kind) {
  static EntryPoint entry("cudaMemcpyFromSymbol", Allowed::not_capturing);
  return entry.call([&] {
    return simgpu::with_variable(
        symbol, bytes, offset, kind, cudaMemcpyHostToDevice, [&](const void* from) {
          return simgpu::copy_now("cudaMemcpyFromSymbol", simgpu::contiguous(to, from, bytes),
                                  kind);
        });
  });
}

cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, std::size_t bytes,
                                      std::size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  static EntryPoint entry("cudaMemcpyFromSymbolAsync");
  return entry.call([&] {
    return simgpu::with_variable(
        symbol, bytes, offset, kind, cudaMemcpyHostToDevice, [&](const void* from) {
          return simgpu::copy_async("cudaMemcpyFromSymbolAsync",
                                    simgpu::contiguous(to, from, bytes), kind, stream);
        });
  });
}
