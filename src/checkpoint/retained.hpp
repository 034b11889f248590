#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/run_folder.hpp"
#include "checkpoint/snapshot.hpp"
#include "checkpoint/verification.hpp"
#include "lockstep/checkpoint/manager.hpp"

/// @file
/// Which checkpoints of a run stay.

namespace lockstep::checkpoint {

/// What rank 0 knows of the checkpoints of its folder, and deletes. One thread at a time.
///
/// Those known to be whole were read, by this start of the run or an earlier one that has noted it
/// beside the manifest; of those that it found there the others, unless they were damaged, are
/// thought to be until a load says otherwise. What is not known can be better or newer, and then
/// takes the place of nothing: the newest and the best that are known to be whole stay beside it.
class Retained {
 public:
  /// @param folder of checkpoints, as former runs left it.
  explicit Retained(const std::filesystem::path& folder);

  /// All of a checkpoint was read. What is told here is noted for those who start again; where that
  /// fails, they do not know it.
  void note_whole(std::int64_t step);
  /// One was loaded. @param entirely all of it was read; else it counts for this start alone, and
  /// says nothing of what is known to be damaged.
  void note_loaded(std::int64_t step, bool entirely);
  /// The run goes on from the checkpoint that was loaded last, if one was since the last save: that
  /// is the newest one then, whatever was saved behind it before, so that who starts again finds
  /// what this branch leaves in memory to be newer.
  void note_going_on(RunFolder& folder);
  /// One could not be loaded: for damage, or because its files are away.
  void note_not_loaded(std::int64_t step);
  void note_damaged(std::int64_t step);
  /// A checkpoint was saved, maybe over another.
  void note_saved(const Snapshot& snapshot);
  /// Deletes what shall not stay beside the one that was saved last.
  void prune(RunFolder& folder, const ManagerOptions& options, const Snapshot& saved);

 private:
  void add_whole(std::int64_t step);
  void look();
  void look_at(const Found& found, std::vector<Manifest>& whole);
  void note(std::int64_t step, Verification found) const noexcept;
  void forget(std::int64_t step);
  bool is_whole(std::int64_t step) const;
  template <class Condition>
  std::optional<std::int64_t> best_of(const Condition& counts) const;

  std::filesystem::path folder_;
  std::map<std::int64_t, std::optional<double>> metrics_;  // of those whose manifest was read
  std::set<std::int64_t> unread_;                          // where that did not work
  std::vector<std::int64_t> whole_;                        // the newest last
  std::set<std::int64_t> found_;                           // of former runs
  std::set<std::int64_t> damaged_;
  std::optional<std::int64_t> loaded_;  // since the last save
};

}  // namespace lockstep::checkpoint
