#include "checkpoint/share.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/io/crc32c.hpp"

namespace lockstep::checkpoint {
namespace {

/// Of what parts consist: many pages, and a small share of a part of some MB.
constexpr std::uint64_t unit_bytes = std::uint64_t{64} << 10;

std::uint64_t blocks_of(std::uint64_t bytes) { return (bytes + block_bytes - 1) / block_bytes; }
std::uint64_t units_of(std::uint64_t bytes) { return (bytes + unit_bytes - 1) / unit_bytes; }

/// What is sent of a contribution.
struct Packed {
  std::uint64_t file, block;
  std::uint32_t sum, unused = 0;
};

}  // namespace

std::vector<std::pair<std::uint64_t, std::uint64_t>> equal_parts(
    std::span<const std::uint64_t> file_sizes, int rank, int size) {
  std::uint64_t total = 0;
  for (const std::uint64_t bytes : file_sizes) total += units_of(bytes);
  const auto bound = [&](int number) {
    const auto ranks = static_cast<std::uint64_t>(size), n = static_cast<std::uint64_t>(number);
    return total / ranks * n + total % ranks * n / ranks;
  };
  const std::uint64_t first = bound(rank), last = bound(rank + 1);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parts;
  std::uint64_t before = 0;
  for (const std::uint64_t bytes : file_sizes) {
    const std::uint64_t units = units_of(bytes);
    const auto begin = std::clamp(first, before, before + units) - before;
    const auto end = std::clamp(last, before, before + units) - before;
    parts.emplace_back(std::min(begin * unit_bytes, bytes), std::min(end * unit_bytes, bytes));
    before += units;
  }
  return parts;
}

std::vector<Extent> own_extents(std::span<const PlannedTensor> tensors,
                                std::span<const std::optional<parallel::ShardRange>> ranges,
                                std::span<const std::pair<std::uint64_t, std::uint64_t>> parts) {
  std::vector<Extent> extents;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const PlannedTensor& tensor = tensors[i];
    std::uint64_t begin = 0, end = tensor.bytes;
    if (ranges[i]) {
      const auto width = static_cast<std::uint64_t>(size_of(tensor.spec.dtype));
      begin = static_cast<std::uint64_t>(ranges[i]->begin) * width;
      end = begin + static_cast<std::uint64_t>(ranges[i]->count) * width;
    } else {
      const auto& [low, high] = parts[tensor.file];
      begin = std::clamp(low, tensor.offset, tensor.offset + tensor.bytes) - tensor.offset;
      end = std::clamp(high, tensor.offset, tensor.offset + tensor.bytes) - tensor.offset;
    }
    if (begin < end)
      extents.push_back({.file = tensor.file,
                         .offset = tensor.offset + begin,
                         .bytes = end - begin,
                         .tensor = i,
                         .from = ranges[i] ? 0 : begin});
  }
  return extents;
}

std::uint64_t Contributions::block_end(std::size_t file, std::uint64_t block) const {
  return std::min((block + 1) * block_bytes, sizes_[file]);
}

void Contributions::add(std::size_t file, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t block = offset / block_bytes, end = block_end(file, block);
    const std::uint64_t count = std::min<std::uint64_t>(bytes.size(), end - offset);
    sums_[{file, block}] ^= io::crc32c_contribution(bytes.first(count), end - offset - count);
    offset += count;
    bytes = bytes.subspan(count);
  }
}

void Contributions::add(const Contributions& others) {
  for (const auto& [place, sum] : others.sums_) sums_[place] ^= sum;
}

void Contributions::add_packed(std::string_view packed) {
  for (; packed.size() >= sizeof(Packed); packed.remove_prefix(sizeof(Packed))) {
    Packed each{};
    std::memcpy(&each, packed.data(), sizeof each);
    LOCKSTEP_CHECK(each.file < sizes_.size() && each.block < blocks_of(sizes_[each.file]),
                   CorruptData, "a checksum of block ", each.block, " of file ", each.file,
                   ", which does not exist");
    sums_[{each.file, each.block}] ^= each.sum;
  }
  LOCKSTEP_CHECK(packed.empty(), CorruptData, packed.size(), " bytes behind checksums");
}

std::string Contributions::pack() const {
  std::string packed;
  for (const auto& [place, sum] : sums_) {
    const Packed each{.file = place.first, .block = place.second, .sum = sum};
    packed.append(reinterpret_cast<const char*>(&each), sizeof each);
  }
  return packed;
}

std::vector<std::uint32_t> Contributions::checksums(std::size_t file) const {
  std::vector<std::uint32_t> checksums;
  for (std::uint64_t block = 0; block < blocks_of(sizes_[file]); ++block) {
    const auto sum = sums_.find({file, block});
    checksums.push_back(io::crc32c_of_zeros(block_end(file, block) - block * block_bytes) ^
                        (sum == sums_.end() ? 0 : sum->second));
  }
  return checksums;
}

}  // namespace lockstep::checkpoint
