#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

/// What bytes contribute to the checksum of a longer run in which `behind` bytes follow them: the
/// run's checksum is the exclusive or of the contributions of all its bytes, in any order and cut
/// anywhere, and of `crc32c_of_zeros` of its size. So may several compute a run's checksum that
/// each have a part of it.
std::uint32_t crc32c_contribution(std::span<const std::byte> bytes, std::uint64_t behind) noexcept;

/// The checksum of so many zeros.
std::uint32_t crc32c_of_zeros(std::uint64_t size) noexcept;

/// A bit of a run of bytes.
struct FlippedBit {
  std::uint64_t byte;  ///< from 0
  int bit;             ///< 0, the lowest, to 7
};

/// The bit which, flipped alone, makes of a run with one checksum a run with another; nothing if
/// there is none. The first found of runs longer than 256 MiB. Costs some nanoseconds a byte.
/// @param size of the run, in bytes.
std::optional<FlippedBit> find_flipped_bit(std::uint32_t expected, std::uint32_t found,
                                           std::uint64_t size) noexcept;

}  // namespace lockstep::io
