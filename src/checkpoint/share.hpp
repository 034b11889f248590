#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "checkpoint/layout.hpp"
#include "checkpoint/manifest.hpp"
#include "lockstep/parallel/shard_range.hpp"

/// @file
/// Which bytes of a checkpoint's files are whose.

namespace lockstep::checkpoint {

/// Bytes of a file that one rank writes or reads, and where it has them.
struct Extent {
  std::size_t file;      ///< of the files of a layout
  std::uint64_t offset;  ///< in the file
  std::uint64_t bytes;
  std::size_t tensor;  ///< of the layout's tensors
  std::uint64_t from;  ///< the first of these bytes in what the rank has of the tensor
};

/// The bytes [first, second) of each file that a rank has of what all ranks have alike: equal parts
/// of all files together, to 64 KiB.
std::vector<std::pair<std::uint64_t, std::uint64_t>> equal_parts(
    std::span<const std::uint64_t> file_sizes, int rank, int size);

/// What a rank has of the tensors of a layout, in the order of their bytes.
/// @param ranges of each tensor what the rank has of its own; unset: all ranks have it alike.
/// @param parts as `equal_parts` gives them.
std::vector<Extent> own_extents(std::span<const PlannedTensor> tensors,
                                std::span<const std::optional<parallel::ShardRange>> ranges,
                                std::span<const std::pair<std::uint64_t, std::uint64_t>> parts);

/// Contributions to the checksums of blocks, by file and block: what several ranks' bytes make
/// together (`io::crc32c_contribution`).
class Contributions {
 public:
  /// @param file_sizes of all files.
  explicit Contributions(std::vector<std::uint64_t> file_sizes) : sizes_(std::move(file_sizes)) {}

  /// Takes bytes of a file in.
  void add(std::size_t file, std::uint64_t offset, std::span<const std::byte> bytes);
  /// Takes in what was collected of other bytes of the same files.
  void add(const Contributions& others);
  /// Takes another rank's in, as `pack` gave them.
  /// @throws CorruptData for what it does not give.
  void add_packed(std::string_view packed);
  /// All, to be sent.
  std::string pack() const;
  /// The checksums of a file's blocks, once all bytes of it were taken in.
  std::vector<std::uint32_t> checksums(std::size_t file) const;

 private:
  std::uint64_t block_end(std::size_t file, std::uint64_t block) const;

  std::vector<std::uint64_t> sizes_;
  std::map<std::pair<std::size_t, std::uint64_t>, std::uint32_t> sums_;
};

}  // namespace lockstep::checkpoint
