#pragma once

#include <cstddef>
#include <cstdint>

/// @file
/// What `crc32c` chooses from.

namespace lockstep::io {

/// For processors without instructions for it. The checksum is not inverted, neither `before` nor
/// the result.
std::uint32_t crc32c_by_tables(const std::byte* bytes, std::size_t size, std::uint32_t before);

}  // namespace lockstep::io
