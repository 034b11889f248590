#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/operation.hpp"

/// @file
/// The memory of strided arrays, as the operands of library calls are: which bytes they touch, and
/// the checks that every operand gets.

namespace simgpu {

/// One dimension of an array in memory.
struct Extent {
  std::int64_t count = 1;
  std::int64_t stride = 0;  ///< bytes
};

/// An operand of a library call.
struct StridedArray {
  std::string_view name;  ///< as reports call it: "A", "bias", "dq"
  void* data = nullptr;
  std::size_t item = 0;  ///< bytes of one element
  std::vector<Extent> extents;
};

/// A run of bytes.
struct ByteRange {
  std::byte* data;
  std::size_t bytes;
};

/// The bytes of an array as sorted, disjoint runs, gaps left out. Where there are more than `limit`
/// runs, the one range that holds them all.
std::vector<ByteRange> byte_ranges(const StridedArray& array, std::size_t limit = SIZE_MAX);

/// True if two arrays have bytes in common.
bool overlap(const StridedArray& one, const StridedArray& other);

/// Adds what an operation does to an array: its runs, or one range where there are very many.
void add_accesses(std::vector<Access>& accesses, const StridedArray& array, bool writes);

/// How many distinct bytes an array has.
std::size_t bytes_of(const StridedArray& array);

/// True if the array lies within one block of a device's memory; reports it as out-of-bounds (or
/// use-after-free) if not. To be asked when the operation is queued, while its blocks are held.
bool inside_block(std::string_view operation, const StridedArray& array, const CallSite& site);

/// True if the device may use the memory of the array; reports it if it is another one's and there
/// is no access to peers.
bool is_reachable(std::string_view operation, const StridedArray& array, int device,
                  const CallSite& site);

/// Reports the first element that nothing has written. To be asked when the operation runs.
void expect_initialized(std::string_view operation, const StridedArray& array,
                        const CallSite& site);

/// Tells the shadow that the array was written.
void mark_initialized(const StridedArray& array);

}  // namespace simgpu
