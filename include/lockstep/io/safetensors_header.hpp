#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/dtype.hpp"
#include "lockstep/core/shape.hpp"

/// @file
/// The table of contents of a safetensors file (https://github.com/huggingface/safetensors):
/// 8 bytes of length, that many bytes of JSON, then the tensors' bytes without gaps.

namespace lockstep::io {

/// Longest header accepted, in bytes; the limit of the Python package.
inline constexpr std::uint64_t max_safetensors_header = 100'000'000;
/// Largest number of tensors accepted in one file.
inline constexpr std::size_t max_safetensors_entries = std::size_t{1} << 20;

/// Where one tensor lies in a safetensors file.
struct SafetensorsEntry {
  std::string name;
  /// Element type as the file spells it: "F32", "I64", "U16".
  std::string format;
  Shape shape;
  /// First byte and one past the last, counted from the start of the data section.
  std::uint64_t begin = 0, end = 0;
};

/// A checked table of contents.
struct SafetensorsHeader {
  /// In the order of their bytes in the file.
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string, std::less<>> metadata;
  /// Where in the file the data section starts.
  std::uint64_t data_begin = 0;
};

/// The dtype behind a format's name; none for types that lockstep does not have.
std::optional<DType> dtype_of_format(std::string_view format);

/// The name that the format gives to a dtype.
std::string_view format_of_dtype(DType dtype);

/// Parses and checks everything: the JSON, names, dtypes, shapes, and that the tensors' bytes fill
/// the rest of the file with neither gap nor overlap. Memory use is bounded by the header's length.
/// @param file contents of the file; only the header's bytes are touched.
/// @param source the file's name for messages.
/// @throws CorruptData naming the place; Unsupported for more than `max_rank` dimensions.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           std::string_view source);

/// The same of a file of which only the beginning is in memory, with all of the header.
/// @param size of the whole file, in bytes.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> beginning, std::uint64_t size,
                                           std::string_view source);

/// Orders entries as Python's `safetensors` writes them, largest element types first, then by name,
/// and sets their places, one behind the other.
/// @throws InvalidArgument for a doubled or reserved name.
void place_safetensors_entries(std::vector<SafetensorsEntry>& entries);

/// The first bytes of a file, up to its data section: what `parse_safetensors_header` reads.
/// @param alignment a multiple of 8, to which the data section's start is filled up with spaces.
/// @throws InvalidArgument for a name or text that is not UTF-8, or a header that is too long.
std::string write_safetensors_header(const SafetensorsHeader& header, std::uint64_t alignment = 8);

}  // namespace lockstep::io
