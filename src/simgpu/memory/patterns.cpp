#include "simgpu/memory/patterns.hpp"

#include <cstring>

namespace simgpu {
namespace {

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
  std::size_t at = 0;
  for (; at + sizeof word <= bytes; at += sizeof word) std::memcpy(data + at, &word, sizeof word);
  for (; at < bytes; ++at) data[at] = byte_of(pattern, data + at);
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
