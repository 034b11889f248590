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

/// The fill as an operation.
Operation fill_operation(const char* name, const Fill& fill);

/// Checks, as the host sees memory now, that each access of an operation lies in one block.
/// @return cudaErrorInvalidValue, after a report, where one does not.
cudaError_t check_ranges(const Operation& operation);

}  // namespace simgpu
