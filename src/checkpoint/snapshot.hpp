#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/later_copies.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/registry.hpp"
#include "checkpoint/staging.hpp"
#include "checkpoint/state_file.hpp"

/// @file
/// The state of a run at one moment.

namespace lockstep::checkpoint {

/// This rank's bytes of a file.
struct Segment {
  std::size_t file;      ///< of Snapshot::files
  std::uint64_t offset;  ///< in the file
  std::span<const std::byte> bytes;
};

/// What a save writes.
struct Snapshot {
  std::int64_t step = 0;
  std::optional<double> metric;
  std::optional<std::int64_t> kept;  ///< step of another that stays beside it
  /// Files of tensors: names and sizes, the same on all ranks.
  std::vector<std::pair<std::string, std::uint64_t>> files;
  std::uint32_t headers = 0;  ///< checksum of what they begin with
  std::string header_texts;   ///< that, for messages; of one that was found in memory: nothing
  /// This rank's bytes of them; those of all ranks are all bytes. In a Staging.
  std::vector<Segment> segments;
  /// Small files, whole: names and contents; those of rank 0 count.
  std::vector<std::pair<std::string, std::string>> texts;
  NamedValues shared;
  /// This rank's values, as JSON. Of a snapshot that was found in memory: those of several ranks.
  std::vector<std::pair<int, std::string>> own_values;
  std::string value_names;  ///< of the states that both are of

  /// What tells the plan from another: compared between the ranks.
  std::string plan_signature() const;
  /// What is wrong where rank 0 has another plan; empty if it has this one.
  /// @param headers_of_first its header_texts.
  std::string compare_plan(std::string_view of_first, std::string_view headers_of_first) const;
};

/// How much memory the parts of a snapshot take that are this rank's.
struct SnapshotSize {
  std::uint64_t bytes = 0;
  std::size_t runs = 0;
  std::optional<Device> device;  ///< one that some of it is copied from
};

/// Asks all states how large they are now, without what they give by `more`.
SnapshotSize size_of_snapshot(const Registry& registry, int rank, int size,
                              std::uint64_t file_bytes);

/// Takes all states as they are now. What may be copied later is added to `later`, for the caller
/// to start; the rest is copied here, for which the host waits for the device.
/// @param takes_more whether it has what states give by `more`.
/// @param staging holds the copies: of the last snapshot, no more.
Snapshot take_snapshot(const Registry& registry, std::int64_t step, bool takes_more, int rank,
                       int size, std::uint64_t file_bytes, Staging& staging, LaterCopies& later);

}  // namespace lockstep::checkpoint
