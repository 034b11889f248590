#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <vector>

#include "checkpoint/read_back.hpp"
#include "checkpoint/run_folder.hpp"
#include "checkpoint/snapshot.hpp"
#include "lockstep/checkpoint/manager.hpp"

/// @file
/// Which checkpoints of a run stay.

namespace lockstep::checkpoint {

/// What rank 0 knows of the checkpoints of its folder, and deletes. One thread at a time.
class Retained {
 public:
  /// @param folder of checkpoints, as former runs left it: which of them are whole is not known.
  explicit Retained(const std::filesystem::path& folder);

  /// The run goes on from a checkpoint, all of which was read.
  void note_loaded(std::int64_t step);
  /// What all ranks together have found of one that was saved.
  void note_read_back(std::int64_t step, Verdict verdict);
  /// A checkpoint was saved, maybe over another.
  void note_saved(const Snapshot& snapshot);
  /// Deletes what shall not stay beside the one that was saved last.
  void prune(const RunFolder& folder, const ManagerOptions& options, const Snapshot& saved) const;

 private:
  void find_best();

  std::filesystem::path folder_;
  std::optional<std::int64_t> best_;  // the one with the smallest metric, and that
  double metric_ = 0;
  std::vector<std::int64_t> whole_;  // the newest last
  std::set<std::int64_t> damaged_;
};

}  // namespace lockstep::checkpoint
