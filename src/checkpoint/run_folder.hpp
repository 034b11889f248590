#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_descriptor.hpp"
#include "io/kept_from_forks.hpp"
#include "lockstep/checkpoint/folder.hpp"

/// @file
/// A folder of checkpoints, as the one job changes it that has it.

namespace lockstep::checkpoint {

/// Which checkpoints stay.
struct Retention {
  int keep_last = 2;
  std::int64_t keep_every = 0;
  std::optional<std::int64_t> best = {}, kept = {};
  /// They stay, too. They may be among the last.
  std::set<std::int64_t> whole = {};
  /// They go first.
  std::set<std::int64_t> damaged = {};
};

/// Has the folder while it lives. A checkpoint is written under a name of its own and gets its
/// place by a rename: `begin`, write, `commit`. One thread at a time.
class RunFolder {
 public:
  /// Makes the folder where it is missing, takes it, and cleans up behind those that had it.
  /// @param seconds how long to wait for another that has it.
  /// @throws InvalidArgument if that has it still; io::FileError.
  RunFolder(std::filesystem::path folder, int seconds);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  /// Deletes what is left to delete.
  ~RunFolder();

  /// Which taking of the folder this is: 1 for the first.
  std::uint64_t generation() const noexcept { return generation_; }
  /// How often `begin` was called.
  std::uint64_t saves() const noexcept { return saves_; }
  const std::filesystem::path& path() const noexcept { return folder_; }
  /// A random name that the folder has had since it was made, as nothing else has.
  const std::string& token() const noexcept { return token_; }
  /// Makes an empty folder in which a checkpoint is written until it is committed.
  /// @return its name, which no folder had before: a host may still take the name of a former save
  /// for the checkpoint that this has become (NFS keeps names for half a minute).
  std::string begin(std::int64_t step);
  /// The path of what `begin` made last.
  const std::filesystem::path& saving() const noexcept { return saving_; }
  /// Gives that folder its place, durably, and then the name of the newest checkpoint. Files in it
  /// are synced already.
  /// @throws InvalidArgument if another run, or generation of this one, has taken the folder
  /// meanwhile, or another folder is in its place; io::FileError
  void commit(std::int64_t step);
  /// Makes the checkpoint of a step, which is there, the newest one. @throws as `commit`.
  void make_newest(std::int64_t step) const;
  /// Removes what `begin` made.
  void discard() const noexcept;
  /// @throws InvalidArgument if it has vanished.
  void check_is_there() const;
  /// Takes checkpoints that shall not stay away; never the one committed last. Their bytes go with
  /// `delete_left`. @throws io::FileError for the first of those that stay because they cannot be
  /// renamed, when the others are away.
  void prune(const Retention& retention, std::int64_t newest);
  /// Deletes what `commit` and `prune` have taken away, which may take as long as writing it.
  void delete_left() noexcept;

 private:
  void lock(int seconds);
  void check_is_own() const;
  void clean_up() const;
  void remove(const std::filesystem::path& checkpoint);

  std::filesystem::path folder_, saving_;
  std::vector<std::filesystem::path> left_;
  io::FileDescriptor lock_;
  io::KeptFromForks kept_;
  std::string token_, own_;  // what the lock says while it is this one's
  std::uint64_t generation_ = 0, saves_ = 0;
};

/// Checks on another rank that it sees the folder of rank 0, for some time if it does not: network
/// file systems tell of new folders late.
/// @param token that folder's. @throws InvalidArgument; io::FileError where it cannot be written.
void check_same_folder(const std::filesystem::path& folder, const std::string& token,
                       std::chrono::duration<double> timeout);

/// All checkpoints of a folder, the one to load first in front: the newest, then those before it,
/// then those of later steps, which a run left behind that went back.
std::vector<Found> in_order_of_trial(const std::filesystem::path& folder);

/// Writes the name of the newest checkpoint. @throws io::FileError.
void write_latest(const std::filesystem::path& folder, std::string_view name);
/// Reads it; nothing if there is none, or it is damaged.
std::optional<std::string> read_latest(const std::filesystem::path& folder);

}  // namespace lockstep::checkpoint
