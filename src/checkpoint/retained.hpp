#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "checkpoint/run_folder.hpp"
#include "checkpoint/snapshot.hpp"
#include "lockstep/checkpoint/manager.hpp"

/// @file
/// Which checkpoints of a run stay.

namespace lockstep::checkpoint {

/// What rank 0 knows of the checkpoints of its folder, and deletes. One thread at a time.
///
/// Those known to be whole were read since the run began; those that it found there are thought to
/// be until a load says otherwise. What is not known can be better or newer, and then takes the
/// place of nothing: the newest and the best that are known to be whole stay beside it.
class Retained {
 public:
  /// @param folder of checkpoints, as former runs left it.
  explicit Retained(const std::filesystem::path& folder);

  /// The run goes on from a checkpoint, all of which was read.
  void note_whole(std::int64_t step);
  /// One could not be loaded: for damage, or because its files are away.
  void note_not_loaded(std::int64_t step);
  void note_damaged(std::int64_t step);
  /// A checkpoint was saved, maybe over another.
  void note_saved(const Snapshot& snapshot);
  /// Deletes what shall not stay beside the one that was saved last.
  void prune(const RunFolder& folder, const ManagerOptions& options, const Snapshot& saved);

 private:
  void look();
  bool is_whole(std::int64_t step) const;
  template <class Condition>
  std::optional<std::int64_t> best_of(const Condition& counts) const;

  std::filesystem::path folder_;
  std::map<std::int64_t, std::optional<double>> metrics_;  // of those whose manifest was read
  std::set<std::int64_t> unread_;                          // where that did not work
  std::vector<std::int64_t> whole_;                        // the newest last
  std::set<std::int64_t> found_;                           // of former runs
  std::set<std::int64_t> damaged_;
};

}  // namespace lockstep::checkpoint
