#pragma once

#include <cstddef>

#include "engine/operation.hpp"

/// @file
/// Copies and fills as operations.

namespace simgpu {

/// Rows of bytes that are copied; one row where memory is contiguous.
struct Copy {
  void* to = nullptr;
  std::size_t to_pitch = 0;
  const void* from = nullptr;
  std::size_t from_pitch = 0;
  std::size_t width = 0;
  std::size_t height = 1;

  std::size_t bytes() const { return width * height; }
};

/// Rows that are filled with one byte value.
struct Fill {
  void* data = nullptr;
  std::size_t pitch = 0;
  int value = 0;
  std::size_t width = 0;
  std::size_t height = 1;
};

/// How a copy deals with the host's own memory.
enum class Source : unsigned char {
  read_when_run,
  read_now  ///< the operation keeps what the source holds at this moment
};

/// The copy as an operation: reads and writes exactly its rows, hands on which bytes are
/// initialised, and reports bytes that nothing wrote where they go to the host.
Operation copy_operation(const char* name, Copy copy, Source source = Source::read_when_run);

/// A copy of adjacent bytes.
Copy contiguous(void* to, const void* from, std::size_t bytes);

/// The body of cudaMemcpyAsync and its like: the host's own memory is read before the call returns,
/// and written by then. @param name as reports have it
cudaError_t copy_async(const char* name, const Copy& copy, cudaMemcpyKind kind,
                       cudaStream_t stream);
/// That of cudaMemcpy: returns when the copy is done, except between devices: those the host does
/// not wait for.
cudaError_t copy_now(const char* name, const Copy& copy, cudaMemcpyKind kind);

/// The fill as an operation.
Operation fill_operation(const char* name, const Fill& fill);

/// Checks, as the host sees memory now, that each access of an operation lies in one block.
/// @return cudaErrorInvalidValue, after a report, where one does not.
cudaError_t check_ranges(const Operation& operation);

}  // namespace simgpu
