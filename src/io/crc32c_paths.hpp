#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

/// @file
/// What `crc32c` chooses from.

namespace lockstep::io {

struct Crc32cPath {
  std::string_view name;
  /// The checksum is not inverted, neither `before` nor the result.
  std::uint32_t (*update)(const std::byte* bytes, std::size_t size, std::uint32_t before);
};

/// Those that this processor can take, the fastest first. The last one needs no instructions of its
/// own.
std::vector<Crc32cPath> crc32c_paths();

}  // namespace lockstep::io
