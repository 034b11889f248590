#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/save_interval.hpp"
#include "lockstep/checkpoint/state.hpp"
#include "lockstep/checkpoint/states.hpp"
#include "lockstep/comm/communicator.hpp"

/// @file
/// Saving the whole state of a training run, and going on from it.

namespace lockstep::checkpoint {

/// Options of a Manager.
struct ManagerOptions {
  /// When `save_if_due` saves.
  SaveInterval interval = SaveInterval::automatic();
  /// How many of the newest checkpoints stay; at least 1.
  int keep_last = 2;
  /// Checkpoints of steps that are multiples of this stay, too; 0: none.
  std::int64_t keep_every = 0;
  /// The one with the smallest `metric` given to `save` stays, too; with `read_back` also the best
  /// one that is known to be whole, and the best one found at the start, until a better one is.
  bool keep_best = true;
  /// Loads take over what fits, and leave all else as it is: states that a checkpoint lacks, and
  /// those that it has of something else; of modules single tensors, of optimizers single
  /// parameters' states. A warning says what was left. By default that throws.
  bool partial = false;
  /// `save` returns before the state is on disk.
  bool asynchronous = true;
  /// The memory of copies is pinned beside training where states are on a GPU, which then copies
  /// right into it. Memory that is pinned cannot be swapped out. May differ between ranks.
  bool pin_memory = true;
  /// Reads back from disk what was saved, beside training, and compares it with its checksums: each
  /// rank a part. Damage is a warning and counts as a failed save, and of all that is known to be
  /// whole, by this or by a load, the newest stays. Nothing waits for it: where the next save comes
  /// before, it is given up. Without, numbers and metrics alone say what stays.
  bool read_back = true;
  /// A file of tensors is not larger, unless one tensor alone is.
  std::uint64_t file_bytes = std::uint64_t{4} << 30;
  /// How long to wait for another job that has the folder to leave it: a killed one whose processes
  /// still end; and for the folder to be seen by all ranks. May differ between ranks.
  int lock_seconds = 10;
  /// Steps from one snapshot in memory to the next, which takes as much memory four times over as
  /// the rank's part (twice on a single host); 0: none. Those who have died go on from the newest,
  /// as from a checkpoint, if the memory of a rank's host, or of the next one, is still there.
  std::int64_t snapshot_every = 0;
  /// Of a file system in memory of each host, for snapshots.
  std::filesystem::path snapshot_folder = "/dev/shm";
};

/// Saves checkpoints of one run into a folder, and loads the newest. What belongs to the run is
/// told once, under names:
///
///     checkpoint::Manager checkpoints("runs/a", session.host_world());
///     checkpoints.add("model", ddp);
///     checkpoints.add("optimizer", optimizer, ddp);
///     checkpoints.add("best_loss", best_loss);  // a variable of one's own
///     std::int64_t step = checkpoints.load_newest().value_or(0);
///     for (; step < steps; ++step) {
///       ...
///       checkpoints.save_if_due(step + 1);
///     }
///
/// A checkpoint is a folder, "step-1000", whose files of tensors have the same bytes for any ranks
/// and ZeRO stage, but for what each rank has of its own: Python's safetensors opens them. A rank
/// copies, writes and reads its part. At any moment, also when a rank or the machine dies, the last
/// checkpoint that was saved is there and whole, and so is a loaded one: each byte has a checksum.
///
/// A save that fails (no space left, a broken disk) leaves the former checkpoints as they are, is
/// told as a warning, and is not the end of training: see `wait`.
///
/// One thread; all ranks must make the same calls. Files are written by a thread of its own.
class Manager {
 public:
  /// Takes the folder, which is made if it is missing, for this job, and removes what a save that
  /// died left in it. Blocks; every rank must call it.
  /// @param group of all ranks, on the CPU: its own part of it is split off.
  /// @throws InvalidArgument on every rank if another job has the folder, it is itself a checkpoint
  /// or cannot be written, options are out of range or differ between ranks, or a rank sees another
  /// folder than rank 0.
  Manager(std::filesystem::path folder, const CommunicatorPtr& group, ManagerOptions options = {});
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;
  /// Waits for a save that is under way. Reading back is given up; one that hangs is left alone
  /// after 5 seconds, with a warning.
  ~Manager();

  /// @name What belongs to the run
  /// Names consist of a-z, 0-9 and _. @throws InvalidArgument for others, and names that are taken.
  /// @{

  /// An object that `state_of` knows (states.hpp, or a function of one's own beside its class), or
  /// a variable; with a replica behind it where ranks share out its state. It must live as long.
  template <class Object, class... T>
  void add(std::string name, Object& object, T&... objects) {
    if constexpr (requires { state_of(object, objects...); })
      add(std::move(name), state_of(object, objects...));
    else
      static_assert(
          sizeof(Object) == 0,
          "no checkpoint::state_of takes this: give one of lockstep's objects, a tensor, a "
          "number, a bool or a std::string, or write state_of beside a class of your own");
  }
  void add(std::string name, TensorState state);
  void add(std::string name, ValueState state);
  /// Names of what was added in tensors, such as a model.
  std::vector<std::string> tensor_names() const;
  /// Whether the state of an object was added that its TensorState names: of a communication hook
  /// (as a parallel::BucketReduction), or of an averaging (its nn::ReplicatedModule).
  bool keeps(const void* object) const noexcept;
  /// Whether a state of that name was added.
  bool has(std::string_view name) const noexcept;
  /// @}

  /// Saves all states as they are now, as the checkpoint of a step: the number of steps made, as a
  /// rule. Waits for the save before it, and copies what a forward may change. The rest of this
  /// rank's part, weights and moments above all, is copied beside the next forward and backward:
  /// optimizers and ops in place that come to change it before wait for that (Piece::copied_later);
  /// change it through pointers of your own only behind `wait`. Files are written unhurriedly, so
  /// that training keeps its speed, until somebody waits: `wait`, the next save, the destructor.
  /// Ranks first compare the names of their states, and tell each other whether any of them is
  /// between the micro-batches of a step: with a replica among the states this waits for that.
  /// @param metric for `keep_best`, such as a validation loss; smaller is better. That of rank 0
  /// counts.
  /// @throws InvalidArgument for a negative step, and, with a replica, for a state that not all
  /// ranks have; what states throw, and what a failed device raises: then the save fails on the
  /// other ranks. What fails later is told by `wait`.
  void save(std::int64_t step, std::optional<double> metric = std::nullopt);
  /// The same if the interval of the options is over. To be called after every step, with numbers
  /// that grow. Ranks compare their times in few of these calls.
  /// @return whether it saved.
  bool save_if_due(std::int64_t step, std::optional<double> metric = std::nullopt);
  /// The first half of `save_if_due`, in its place: whether it would save.
  bool is_due(std::int64_t step);
  /// From the next save on, has the checkpoint of a step stay beside those that the options say,
  /// until another is named so: the best of a run in a folder that has better ones of others.
  void keep(std::int64_t step) noexcept;
  /// Waits until the last save is on disk, for good.
  /// @return false on all ranks if it failed; `error` says why.
  bool wait();
  /// Why the save failed that was waited for last, by `wait` or the next save; empty if it did not.
  const std::string& error() const noexcept;
  /// How long the last save took on this rank, from the call until it was on disk, without the time
  /// that it let pass because nobody waited: what the next will take with `wait`; 0 before the
  /// first.
  std::chrono::duration<double> save_time() const noexcept;
  /// Whether this rank has read its part of the checkpoint saved last back, and found it whole.
  bool is_read_back() const noexcept;
  /// How many saves have failed so far, also of those that nobody has waited for yet, and those
  /// that were found damaged when they were read back: the next save or load tells that to all
  /// ranks.
  std::int64_t failed_saves() const noexcept;

  /// Loads the newest checkpoint; one with damage is told as a warning, and the one before is
  /// loaded. A snapshot in memory that is newer becomes a checkpoint before. Blocks; every rank
  /// must call it.
  /// @return its step; nothing in a folder without checkpoints.
  /// @throws CorruptData if all have damage; InvalidArgument on every rank for a state that not all
  /// ranks have added; what `load` throws for other reasons.
  std::optional<std::int64_t> load_newest();
  /// Loads a checkpoint into all states that were added; others of it are left out. All bytes are
  /// read and checked before the first state changes. Blocks; every rank must call it.
  /// @param checkpoint its folder, also of another run.
  /// @return its step.
  /// @throws CorruptData naming file and tensor, also for a file that is missing or cannot be read;
  /// InvalidArgument for a state that it lacks, and for tensors that do not fit, unless the options
  /// say `partial`. On every rank alike.
  std::int64_t load(const std::filesystem::path& checkpoint);
  /// What the last load took over, and what it left; the same on all ranks.
  const LoadReport& load_report() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::checkpoint
