#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/later_copies.hpp"
#include "checkpoint/memory_part.hpp"
#include "checkpoint/registry.hpp"
#include "checkpoint/run_folder.hpp"
#include "checkpoint/same_states.hpp"
#include "checkpoint/throttle.hpp"
#include "lockstep/comm/communicator.hpp"

/// @file
/// Snapshots that lie in the memory of the hosts, where they outlive the ranks.

namespace lockstep::checkpoint {

/// Keeps the two newest snapshots of a run. Each rank has its part in a file of a file system in
/// memory, and, where ranks see several such folders, as those of several hosts do, a rank of the
/// next one has a copy. The older one is overwritten when all ranks have the newer.
///
/// What fails is one warning, and no snapshots from there on. All ranks must make the same calls;
/// one thread.
class MemorySnapshots {
 public:
  /// Blocks. @param group of its own, on the CPU. @param folder to be made, for this run alone.
  /// @param generation of this start of the run.
  /// @param pins the memory of what is copied from GPUs.
  MemorySnapshots(CommunicatorPtr group, std::filesystem::path folder, std::uint64_t generation,
                  bool pins);
  MemorySnapshots(const MemorySnapshots&) = delete;
  MemorySnapshots& operator=(const MemorySnapshots&) = delete;
  /// Waits for the snapshot that is under way.
  ~MemorySnapshots();

  /// Takes one of all states, as a save does: what may be copied later is copied, and all of it is
  /// passed on, beside training. Waits for the one before, and makes way for it: what older starts
  /// have left goes.
  void take(const Registry& registry, std::int64_t step, std::uint64_t file_bytes);
  /// The step of the last one that was taken; nothing before the first.
  std::optional<std::int64_t> last() const noexcept { return last_; }
  /// Writes the newest snapshot that is whole into the run's folder, as a checkpoint, if it is
  /// newer than those there. Waits for the one that is under way.
  /// @param run of rank 0; else null. @param path of the run's folder.
  void recover(RunFolder* run, const std::filesystem::path& path);
  /// Those of this start are gone on from no more: the run goes back. Waits.
  void forget();
  /// Waits, and removes what this start and those before it have left on this host.
  void remove() noexcept;

  /// Where a part is.
  struct Place {
    std::size_t host;
    std::string name;
    friend auto operator<=>(const Place&, const Place&) = default;
  };

 private:
  /// A part of another rank, of which this one has a copy.
  struct Copy {
    int rank;
    Staging memory[2];
  };
  struct Opened;  // what this rank has of a snapshot

  void make_folder() const;
  void find_neighbours(const std::vector<std::string>& identities);
  std::filesystem::path file_of(int rank, int slot) const;
  std::filesystem::path description_of(int rank) const;
  void remove_descriptions(int rank) const;
  void remove_files(std::uint64_t last_generation) const;
  void join() noexcept;
  void wait();
  void keep(std::string error) noexcept;
  std::string keep_copies(const std::string& own, std::string error);
  int holder_of(const Place& place, int rank) const;
  std::string parts_here() const;
  Opened open_parts(const std::vector<Place>& places) const;
  std::string join(const Opened& found, int holder, Snapshot& snapshot) const;
  void write(RunFolder* run, const std::filesystem::path& path, const Snapshot& snapshot);

  CommunicatorPtr group_;
  std::filesystem::path folder_;
  std::uint64_t generation_;
  bool pins_;
  bool is_on_ = true;
  std::vector<std::vector<int>> hosts_;  // the ranks of each
  int keeper_ = -1;                      // has a copy of this rank's part; -1: none needs one
  std::vector<Copy> copies_;             // that this rank has
  Staging memory_[2];
  int slot_ = 1;  // of the last
  std::optional<std::int64_t> last_;
  SameStates states_{"a snapshot in memory, which all ranks take"};
  Snapshot snapshot_;
  Throttle throttle_;  // never begun: there is no time to rest
  LaterCopies later_;
  std::thread thread_;
  std::atomic<bool> is_awaited_ = false;  // the thread
  std::string error_;
};

}  // namespace lockstep::checkpoint
