#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <thread>

#include "checkpoint/finding.hpp"

/// @file
/// Whether what was written can be read.

namespace lockstep::checkpoint {

/// Reads this rank's part of a checkpoint that was saved, and compares it with the manifest: an
/// equal part of its blocks of checksums. A thread of its own does, unhurriedly, from the disk
/// where the page cache can be dropped. Nobody waits for it: what it finds is there to be asked
/// for, and damage is a warning, also where it was cancelled meanwhile. One thread at a time may
/// call.
class ReadBack {
 public:
  /// @param timeout how long the destructor waits for what is being read.
  explicit ReadBack(std::chrono::duration<double> timeout = std::chrono::seconds(5));
  ReadBack(const ReadBack&) = delete;
  ReadBack& operator=(const ReadBack&) = delete;
  /// Cancels, and waits for the end of a read that is under way. One that hangs, as a file system
  /// that is away has it, is left alone, with a warning.
  ~ReadBack();

  /// Begins with the checkpoint of a step. Nothing is read where a thread is not to be had, or
  /// still in a read that was cancelled.
  /// @param rank of `size`. @param longest of how many seconds rests may make it.
  void start(const std::filesystem::path& checkpoint, std::int64_t step, int rank, int size,
             double longest) noexcept;
  /// Ends reading, as soon as what it reads at the moment is there, for which this does not wait.
  void cancel() noexcept;
  /// Damage that was found and not forgotten, of whichever checkpoint; without any what was found
  /// so far of the one begun last.
  Finding finding() const noexcept;
  /// Whether this rank's part of the one begun last was read, and is whole.
  bool is_whole() const noexcept;
  /// Until the next `start` nothing is known of the one begun last but damage.
  void forget_last() noexcept;
  /// All ranks know of this damage.
  void forget_damage(std::int64_t step) noexcept;
  /// How long it took to read the last part that was read whole, in seconds; 0 before the first. Of
  /// one that was cancelled since, twice its time until then, if that is more.
  double seconds() const noexcept;

 private:
  class Reader;
  std::shared_ptr<Reader> reader_;  // the thread's, too
  std::thread thread_;
  std::chrono::duration<double> timeout_;
};

}  // namespace lockstep::checkpoint
