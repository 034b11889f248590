#include "kernels/touch_map.hpp"

#include <algorithm>
#include <bit>
#include <new>

#include <sys/mman.h>

namespace simgpu {
namespace {

/// Past these, the narrowest gaps count as touched.
constexpr std::size_t most_ranges = 64;

/// The bits of word `w` for granules from `first` to `last`: others of the word may be a
/// neighbour's.
std::uint64_t bits_between(std::size_t first, std::size_t last, std::size_t w) {
  constexpr std::uint64_t all = ~std::uint64_t{0};
  const std::uint64_t from = w == first >> 6 ? all << (first & 63) : all;
  const std::uint64_t to = w == last >> 6 ? all >> (63 - (last & 63)) : all;
  return from & to;
}

/// Joins ranges until few enough are left.
void simplify(std::vector<AddressRange>& ranges) {
  for (std::uintptr_t gap = 64; ranges.size() > most_ranges; gap *= 4) {
    std::size_t kept = 0;
    for (std::size_t i = 1; i < ranges.size(); ++i)
      if (ranges[i].begin - ranges[kept].end <= gap)
        ranges[kept].end = ranges[i].end;
      else
        ranges[++kept] = ranges[i];
    ranges.resize(kept + 1);
  }
}

}  // namespace

TouchMap::TouchMap() {
  const std::size_t bytes = (Layout::bytes >> granule_bits) / 8 + sizeof(std::uint64_t);
  void* const words = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (words == MAP_FAILED) throw std::bad_alloc();
  words_ = static_cast<std::uint64_t*>(words);
}

std::vector<AddressRange> TouchMap::take(AddressRange hull, std::uint64_t* bytes) {
  std::vector<AddressRange> ranges;
  if (hull.begin >= hull.end) return ranges;
  const std::size_t first = (hull.begin - Layout::begin) >> granule_bits;
  const std::size_t last = (hull.end - 1 - Layout::begin) >> granule_bits;
  const auto add = [&](std::size_t granule, std::size_t count) {
    const std::uintptr_t begin = Layout::begin + (granule << granule_bits);
    const std::uintptr_t end = begin + (count << granule_bits);
    if (!ranges.empty() && ranges.back().end == begin)
      ranges.back().end = end;
    else
      ranges.push_back({begin, end});
  };
  for (std::size_t w = first >> 6; w <= last >> 6; ++w) {
    std::uint64_t word = words_[w] & bits_between(first, last, w);
    words_[w] ^= word;
    if (bytes) *bytes += std::uint64_t(std::popcount(word)) << granule_bits;
    while (word != 0) {
      const int start = std::countr_zero(word);
      const int count = std::countr_one(word >> start);
      add(w * 64 + static_cast<std::size_t>(start), static_cast<std::size_t>(count));
      word &= start + count == 64 ? 0 : ~std::uint64_t{0} << (start + count);
    }
  }
  simplify(ranges);
  for (AddressRange& range : ranges) {
    range.begin = std::max(range.begin, hull.begin);
    range.end = std::min(range.end, hull.end);
  }
  return ranges;
}

}  // namespace simgpu
