#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// @file
/// Checksums that find what disks and networks change without a word.

namespace lockstep::io {

/// CRC-32C (Castagnoli's polynomial; RFC 3720, appendix B.4): finds every error of up to 3 bits in
/// 256 MiB and every burst of up to 32 bits. Uses the processor's instructions where it has them.
/// @param before the checksum of what comes before the bytes, to go on from.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

/// The checksum of two runs of bytes, one behind the other, from the checksums of both.
/// @param size of the second, in bytes. Costs its logarithm.
std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second,
                             std::uint64_t size) noexcept;

}  // namespace lockstep::io
