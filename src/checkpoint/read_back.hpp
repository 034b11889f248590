#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <thread>

#include "checkpoint/throttle.hpp"

/// @file
/// Whether what was written can be read.

namespace lockstep::checkpoint {

/// What one rank, or several together, know of a checkpoint: that of several is the largest.
enum class Verdict : std::int64_t {
  whole,    ///< every byte was read, and is as it was written
  unknown,  ///< there was no time to read it, or no way
  damaged,
};

/// Reads this rank's part of a checkpoint that was saved, and compares it with the manifest: an
/// equal part of its blocks of checksums. A thread of its own does, unhurriedly, from the disk
/// where the page cache can be dropped. Nobody waits for it: what it finds is there to be asked
/// for, and damage is a warning. One thread may call.
class ReadBack {
 public:
  ReadBack() = default;
  ReadBack(const ReadBack&) = delete;
  ReadBack& operator=(const ReadBack&) = delete;
  /// Cancels, and waits for the end of a read that is under way.
  ~ReadBack();

  /// Begins with a checkpoint. Nothing is read where a thread is not to be had, or still in a read
  /// that was cancelled.
  /// @param rank of `size`. @param longest of how many seconds rests may make it.
  void start(const std::filesystem::path& checkpoint, int rank, int size, double longest) noexcept;
  /// Ends reading, as soon as what it reads at the moment is there, for which this does not wait.
  void cancel() noexcept;
  /// What was found so far of the checkpoint begun last.
  Verdict verdict() const noexcept;
  /// How long it took to read the last part that was read whole, in seconds; 0 before the first.
  double seconds() const noexcept { return seconds_; }
  /// The same as `verdict`, once: from then on, until the next `start`, nothing is known.
  Verdict take_verdict() noexcept;

 private:
  void run(const std::filesystem::path& checkpoint, int rank, int size) noexcept;
  Verdict read(const std::filesystem::path& checkpoint, int rank, int size);
  bool goes_on() const noexcept;

  Throttle throttle_;
  std::atomic<double> seconds_ = 0;
  std::thread thread_;
  mutable std::mutex mutex_;  // of what follows
  bool is_cancelled_ = true, is_running_ = false;
  Verdict verdict_ = Verdict::unknown;
};

}  // namespace lockstep::checkpoint
