#pragma once

#include <cstddef>

#include "cuda_runtime_api.h"

/// @file
/// What simgpu/compiler makes of `__device__` and `__constant__` variables, and the runtime's
/// functions that take one.
///
/// `__constant__ float table[3] = {1, 2, 3};` becomes the host's copy, which gives each device its
/// first values, and a reference `table`. These references of a program lie side by side, so that
/// the simulated GPU can let them refer to the memory of the device whose kernel runs.

namespace simgpu {

enum class VariableKind : unsigned char { device, constant };

/// A variable of the program.
struct VariableDeclaration {
  const void* copy;  ///< the host's
  std::size_t bytes;
  const char* name;
  VariableKind kind;
  bool is_initialized;  ///< the source gives it a value
};

/// Makes a variable known. @param begin first of the references of the program's or library's own
void add_variable(const VariableDeclaration& variable, void** begin, void** end);

}  // namespace simgpu

extern "C" {
// Of each program and library its own, by the linker.
extern void* __start_simgpu_variables[] __attribute__((weak, visibility("hidden")));
extern void* __stop_simgpu_variables[] __attribute__((weak, visibility("hidden")));
}

namespace simgpu {

/// Makes a variable known by the host's copy, to which it refers until a kernel runs.
template <class T>
T& device_variable(T& copy, const char* name, VariableKind kind, bool is_initialized) {
  add_variable({const_cast<const void*>(static_cast<const volatile void*>(&copy)), sizeof copy,
                name, kind, is_initialized},
               __start_simgpu_variables, __stop_simgpu_variables);
  return copy;
}

template <class T>
const void* symbol_of(const T& variable) {
  return const_cast<const void*>(static_cast<const volatile void*>(&variable));
}

}  // namespace simgpu

template <class T>
cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
  return ::cudaGetSymbolAddress(address, simgpu::symbol_of(symbol));
}
template <class T>
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const T& symbol) {
  return ::cudaGetSymbolSize(bytes, simgpu::symbol_of(symbol));
}
template <class T>
cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, std::size_t bytes,
                               std::size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return ::cudaMemcpyToSymbol(simgpu::symbol_of(symbol), from, bytes, offset, kind);
}
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, std::size_t bytes,
                                    std::size_t offset = 0,
                                    cudaMemcpyKind kind = cudaMemcpyHostToDevice,
                                    cudaStream_t stream = nullptr) {
  return ::cudaMemcpyToSymbolAsync(simgpu::symbol_of(symbol), from, bytes, offset, kind, stream);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, std::size_t bytes,
                                 std::size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return ::cudaMemcpyFromSymbol(to, simgpu::symbol_of(symbol), bytes, offset, kind);
}
template <class T>
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, std::size_t bytes,
                                      std::size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyDeviceToHost,
                                      cudaStream_t stream = nullptr) {
  return ::cudaMemcpyFromSymbolAsync(to, simgpu::symbol_of(symbol), bytes, offset, kind, stream);
}
