#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

/// @file
/// What memory holds that nobody wrote.

namespace simgpu {

/// Eight bytes each, repeated; the byte at an address is byte (address & 7) of the pattern. Each is
/// a NaN in every lane of f64, f32, bf16 and f16, and a large number as an integer. Signalling: f64
/// always, the lower f32 of the two, the lower three bf16 of the four. The rest is quiet, because
/// no two bytes can be a signalling NaN of bf16 and f16, nor the upper half of one of f64 and bf16.
struct Pattern {
  static constexpr std::uint64_t fresh = 0x7FF4'7FA5'7FA5'7FA5;
  static constexpr std::uint64_t freed = 0xFFF4'FFBD'FFBD'FFBD;
  static constexpr std::uint64_t guard = 0x7FF6'7F9B'7F9B'7F9B;
};

/// Fills bytes with a pattern.
void fill_pattern(std::byte* data, std::size_t bytes, std::uint64_t pattern);

/// Offset of the first byte that is not as the pattern says; nothing if all are.
std::optional<std::size_t> first_difference(const std::byte* data, std::size_t bytes,
                                            std::uint64_t pattern);

}  // namespace simgpu
