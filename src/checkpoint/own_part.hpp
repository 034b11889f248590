#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/later_copies.hpp"
#include "checkpoint/snapshot.hpp"

/// @file
/// How a rank writes its own part of a checkpoint.

namespace lockstep::checkpoint {

/// The beginning or end of a segment that does not fill a page. Rank 0 writes them all: on network
/// file systems two hosts that write one page undo each other's bytes.
struct Edge {
  std::uint64_t file, offset;
  std::string bytes;
};

/// Bytes of a file that a rank has.
struct Part {
  std::uint64_t file, begin, end;
  friend auto operator<=>(const Part&, const Part&) = default;
};

/// What a rank tells rank 0 of the part that it wrote.
struct Written {
  std::string sums;  ///< as Contributions packs them
  std::vector<Edge> edges;
  std::vector<std::pair<int, std::string>> values;  ///< Snapshot::own_values
  std::vector<Part> parts;
};

/// As a message, and back. @throws CorruptData for one that is cut short.
std::string pack(const Written& written);
Written unpack(std::string_view message);

/// The sizes of a snapshot's files.
std::vector<std::uint64_t> sizes_of(const Snapshot& snapshot);

/// Writes the pages that this rank's segments fill into files that exist, durably.
/// @param is_first whether this is rank 0, which writes its edges, too.
/// @param later has copies that are waited for, each before it is written.
/// @param throttle how much of the processor it may take; a part of a few MB is written at once.
/// @throws io::FileError, and what a copy failed with.
Written write_own(const std::filesystem::path& saving, const Snapshot& snapshot, bool is_first,
                  LaterCopies& later, Throttle& throttle);

}  // namespace lockstep::checkpoint
