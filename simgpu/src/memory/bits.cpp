#include "memory/bits.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "memory/layout.hpp"
#include "memory/pages.hpp"
#include "memory/reservation.hpp"

namespace simgpu {
namespace {

using Byte = std::uint8_t;

/// A range of bits, counted from the map's beginning.
struct Bits {
  Byte* map;
  std::size_t begin;
  std::size_t end;

  Bits(std::uintptr_t base, const void* data, std::size_t bytes)
      : map(reinterpret_cast<Byte*>(base)),
        begin(reinterpret_cast<std::uintptr_t>(data) - Layout::begin),
        end(begin + bytes) {}
};

/// The bits from `first` up to `last` of one byte.
Byte mask(std::size_t first, std::size_t last) {
  return static_cast<Byte>(((1U << (last - first)) - 1U) << first);
}

void assign(Byte& byte, Byte bits, bool value) {
  byte = static_cast<Byte>(value ? byte | bits : byte & ~bits);
}

std::uint64_t word_at(const Byte* map) {
  std::uint64_t word;
  std::memcpy(&word, map, sizeof word);
  return word;
}

}  // namespace

void set_bits(std::uintptr_t base, const void* data, std::size_t bytes, bool value) {
  const Bits bits(base, data, bytes);
  std::size_t at = bits.begin;
  if (at % 8 != 0) {
    const std::size_t stop = std::min(bits.end, (at / 8 + 1) * 8);
    assign(bits.map[at / 8], mask(at % 8, at % 8 + (stop - at)), value);
    at = stop;
  }
  if (at == bits.end) return;
  const std::size_t whole = bits.end / 8 - at / 8;
  std::memset(bits.map + at / 8, value ? 0xFF : 0, whole);
  if (bits.end % 8 != 0) assign(bits.map[bits.end / 8], mask(0, bits.end % 8), value);
}

void set_bits_of_allocation(std::uintptr_t base, const void* data, std::size_t bytes, bool value) {
  constexpr std::size_t worth_mapping = std::size_t{256} << 10;
  if (bytes < worth_mapping) return set_bits(base, data, bytes, value);
  constexpr std::size_t per_page = 8 * page_bytes;
  const auto* const begin = static_cast<const std::byte*>(data);
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(data) - Layout::begin;
  const std::size_t before = (per_page - offset % per_page) % per_page;
  const std::size_t whole = (bytes - before) / per_page * per_page;
  set_bits(base, begin, before, value);
  map_bit_pages(reinterpret_cast<void*>(base + (offset + before) / 8), whole / 8, value);
  set_bits(base, begin + before + whole, bytes - before - whole, value);
}

std::optional<std::size_t> first_clear_bit(std::uintptr_t base, const void* data,
                                           std::size_t bytes) {
  const Bits bits(base, data, bytes);
  std::size_t at = bits.begin;
  while (at < bits.end) {
    // 57 bits at least from any position on.
    const std::uint64_t clear = ~word_at(bits.map + at / 8) >> (at % 8);
    const std::size_t here = std::min<std::size_t>(64 - at % 8, bits.end - at);
    const auto first = static_cast<std::size_t>(std::countr_zero(clear));
    if (first < here) return at + first - bits.begin;
    at += here;
  }
  return std::nullopt;
}

void copy_bits(std::uintptr_t base, const void* to, const void* from, std::size_t bytes) {
  if (!first_clear_bit(base, from, bytes)) return set_bits(base, to, bytes, true);
  const Bits source(base, from, bytes);
  const Bits target(base, to, bytes);
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t bit = target.begin + at;
    const std::size_t here = std::min(8 - bit % 8, bytes - at);
    const std::size_t other = source.begin + at;
    const auto two = static_cast<unsigned>(source.map[other / 8]) |
                     static_cast<unsigned>(source.map[other / 8 + 1]) << 8;
    const Byte wanted = mask(bit % 8, bit % 8 + here);
    const auto moved = static_cast<Byte>((two >> (other % 8)) << (bit % 8));
    target.map[bit / 8] = static_cast<Byte>((target.map[bit / 8] & ~wanted) | (moved & wanted));
    at += here;
  }
}

}  // namespace simgpu
