#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/snapshot.hpp"
#include "checkpoint/staging.hpp"

/// @file
/// What one rank has of a snapshot in memory: a file with its bytes, and a small one, made last,
/// that says what they are.

namespace lockstep::checkpoint {

/// Which part of which snapshot.
struct PartId {
  std::uint64_t generation = 0;  ///< of the run, that made it
  std::int64_t step = 0;
  int size = 1, rank = 0;  ///< of that start
  friend auto operator<=>(const PartId&, const PartId&) = default;
};

/// What the other file's name ends with.
inline constexpr std::string_view description_suffix = ".is";

/// What the small file holds, its own checksum included.
/// @param bytes in which the snapshot's segments lie.
std::string describe_part(const PartId& id, const Snapshot& snapshot,
                          std::span<const std::byte> bytes);
/// Which part it is. @throws CorruptData.
PartId id_of_part(std::string_view description);
/// Compares the bytes with what is said of them. @throws CorruptData.
void check_part(std::string_view description, std::span<const std::byte> bytes);
/// The snapshot, with segments that point into the bytes. @param bytes null: without segments.
/// @throws CorruptData.
Snapshot snapshot_of_part(std::string_view description, const std::byte* bytes);

}  // namespace lockstep::checkpoint
