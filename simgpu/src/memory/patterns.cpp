#include "memory/patterns.hpp"

#include <algorithm>
#include <cstring>

namespace simgpu {
namespace {

constexpr std::size_t repeated = 4096;

std::byte byte_of(std::uint64_t pattern, const std::byte* address) {
  return static_cast<std::byte>(pattern >> (8 * (reinterpret_cast<std::uintptr_t>(address) & 7)));
}

/// The pattern as it reads from an address on.
std::uint64_t rotated(std::uint64_t pattern, const std::byte* address) {
  const unsigned shift = 8 * (reinterpret_cast<std::uintptr_t>(address) & 7);
  return shift == 0 ? pattern : (pattern >> shift) | (pattern << (64 - shift));
}

}  // namespace

void fill_pattern(std::byte* data, std::size_t bytes, std::uint64_t pattern) {
  const std::uint64_t word = rotated(pattern, data);
  const std::size_t beginning = std::min(bytes, repeated);
  std::size_t at = 0;
  for (; at + sizeof word <= beginning; at += sizeof word)
    std::memcpy(data + at, &word, sizeof word);
  for (; at < beginning; ++at) data[at] = byte_of(pattern, data + at);
  // Copies of a piece that stays in the cache: several times faster than word by word.
  for (; at < bytes; at += repeated) std::memcpy(data + at, data, std::min(repeated, bytes - at));
}

std::optional<std::size_t> first_difference(const std::byte* data, std::size_t bytes,
                                            std::uint64_t pattern) {
  const std::uint64_t word = rotated(pattern, data);
  std::size_t at = 0;
  for (std::uint64_t found = 0; at + sizeof word <= bytes; at += sizeof word) {
    std::memcpy(&found, data + at, sizeof found);
    if (found != word) break;
  }
  for (; at < bytes; ++at)
    if (data[at] != byte_of(pattern, data + at)) return at;
  return std::nullopt;
}

}  // namespace simgpu
