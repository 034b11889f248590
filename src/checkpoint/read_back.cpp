#include "checkpoint/read_back.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/background_thread.hpp"
#include "checkpoint/contents.hpp"
#include "checkpoint/exchange.hpp"
#include "checkpoint/throttle.hpp"
#include "checkpoint/verification.hpp"
#include "checkpoint/verify_blocks.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/file_error.hpp"
#include "lockstep/observe/log.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::size_t blocks_of(const Manifest& manifest) {
  std::size_t blocks = 0;
  for (const FileRecord& file : manifest.files) blocks += file.checksums.size();
  return blocks;
}

/// What rank `number` begins with; of `size` ranks.
std::size_t first_of(std::size_t blocks, int number, int size) {
  return blocks * static_cast<std::size_t>(number) / static_cast<std::size_t>(size);
}

/// Calls again, once, what a disk or a network has refused: that may pass.
template <class Read>
auto twice(const Read& read) {
  try {
    return read();
  } catch (const io::FileError& error) {
    if (error.status() != EIO) throw;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return read();
}

/// Whether a checkpoint is still the one that a manifest is of: none has replaced or deleted it.
bool is_still_there(const fs::path& checkpoint, const Manifest& manifest) {
  try {
    const Manifest now = twice([&] { return read_manifest(checkpoint); });
    return now.generation == manifest.generation && now.save == manifest.save;
  } catch (const io::FileError& error) {
    return error.status() != ENOENT && error.status() != ESTALE;
  } catch (const Error&) {  // damaged, too
    return true;
  }
}

}  // namespace

/// What the thread has, and who asks it.
class ReadBack::Reader {
 public:
  /// Which part of which checkpoint.
  struct Task {
    fs::path checkpoint;
    std::int64_t step = 0;
    int rank = 0, size = 1;
  };

  /// @return whether the thread is to be started, which is to `run`.
  bool begin(std::int64_t step, double longest) {
    const std::lock_guard lock(mutex_);
    is_whole_ = false;
    damaged_.erase(step);  // that was of the one before
    if (is_running_) return false;
    throttle_.begin(longest);
    is_cancelled_ = false;
    start_ = Clock::now();
    return is_running_ = true;
  }

  // Whoever knows what it found can begin the next.
  void run(const Task& task) noexcept {
    yield_to_training();
    Outcome outcome;
    error_of([&] { look_at(task, outcome); });
    end(outcome.is_whole);
    for (const std::string& each : outcome.warnings) error_of([&] { LOCKSTEP_LOG(warning, each); });
  }

  void end(bool is_whole) noexcept {
    const std::lock_guard lock(mutex_);
    if (is_whole && !is_cancelled_) {
      is_whole_ = true;
      seconds_ = so_far();
    }
    is_running_ = false;
    ended_.notify_all();
  }

  void cancel() noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (is_running_ && !is_cancelled_) seconds_ = std::max(seconds_, 2 * so_far());
      is_cancelled_ = true;
    }
    throttle_.hurry();
  }

  /// @return whether it has ended before so much time was over.
  bool wait(std::chrono::duration<double> timeout) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, timeout, [this] { return !is_running_; });
  }

  Finding finding() const noexcept {
    const std::lock_guard lock(mutex_);
    if (!damaged_.empty()) return Finding::damaged(*damaged_.rbegin());
    return is_whole_ ? Finding::whole() : Finding();
  }

  bool is_whole() const noexcept {
    const std::lock_guard lock(mutex_);
    return is_whole_;
  }

  void forget_last() noexcept {
    const std::lock_guard lock(mutex_);
    is_whole_ = false;
  }

  void forget_damage(std::int64_t step) noexcept {
    const std::lock_guard lock(mutex_);
    damaged_.erase(step);
  }

  double seconds() const noexcept {
    const std::lock_guard lock(mutex_);
    return seconds_;
  }

 private:
  double so_far() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  bool goes_on() const noexcept {
    const std::lock_guard lock(mutex_);
    return !is_cancelled_;
  }

  struct Outcome {
    bool is_whole = false;
    std::vector<std::string> warnings;
  };

  static std::string about(const Task& task) { return "read back, " + task.checkpoint.string(); }

  // What cannot be opened or read may be away for a while only, or seen later than by who wrote it.
  void look_at(const Task& task, Outcome& outcome) {
    std::optional<Manifest> manifest;
    try {
      manifest = twice([&] { return read_manifest(task.checkpoint); });
      read(task, *manifest);
      outcome.is_whole = true;
    } catch (const CorruptData& error) {
      if (!is_still_there(task.checkpoint, manifest.value_or(Manifest()))) return;
      outcome.warnings = note_damage(task, manifest, error.what());
    } catch (const std::exception& error) {
      if (goes_on()) outcome.warnings = {about(task) + " cannot be read: " + error.what()};
    }
  }

  // Beside the manifest at once, as the run may end before the next save; where the manifest is
  // damaged, that is note enough.
  std::vector<std::string> note_damage(const Task& task, const std::optional<Manifest>& manifest,
                                       const char* what) {
    {
      const std::lock_guard lock(mutex_);
      damaged_.insert(task.step);
    }
    std::vector<std::string> warnings = {about(task) + " is damaged: " + what};
    if (!manifest) return warnings;
    const std::string problem =
        error_of([&] { note_verification(task.checkpoint, *manifest, Verification::damaged); });
    if (!problem.empty() && is_still_there(task.checkpoint, *manifest))
      warnings.push_back("who starts the run again will not know it: " + problem);
    return warnings;
  }

  /// @throws CorruptData for damage; io::FileError.
  void read(const Task& task, const Manifest& manifest) {
    const std::size_t blocks = blocks_of(manifest);
    std::size_t first = first_of(blocks, task.rank, task.size),
                last = first_of(blocks, task.rank + 1, task.size);
    double before = processor_seconds();
    const auto rests_and_goes_on = [&](bool is_whole) {
      if (!is_whole) return false;
      throttle_.spend(processor_seconds() - before);
      throttle_.rest();
      before = processor_seconds();
      return goes_on();
    };
    for (const FileRecord& file : manifest.files) {
      if (!goes_on()) return;
      const std::size_t count = file.checksums.size();
      const std::size_t begin = std::min(first, count), end = std::min(last, count);
      if (begin < end || (count == 0 && task.rank == 0)) {
        const std::vector<Damage> damage = twice([&] {
          return verify_blocks(task.checkpoint, manifest, file, begin, end, From::disk,
                               rests_and_goes_on);
        });
        LOCKSTEP_CHECK(damage.empty(), CorruptData, describe(damage.front()));
      }
      first -= begin;
      last -= end;
    }
  }

  Throttle throttle_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable ended_;
  bool is_cancelled_ = true, is_running_ = false;
  Clock::time_point start_;
  double seconds_ = 0;
  bool is_whole_ = false;
  std::set<std::int64_t> damaged_;
};

ReadBack::ReadBack(std::chrono::duration<double> timeout)
    : reader_(std::make_shared<Reader>()), timeout_(timeout) {}

ReadBack::~ReadBack() {
  cancel();
  if (!thread_.joinable()) return;
  if (reader_->wait(timeout_)) {
    thread_.join();
    return;
  }
  error_of([] {
    LOCKSTEP_LOG(warning, "a checkpoint is being read back and hangs: nobody waits for that");
  });
  thread_.detach();
}

void ReadBack::start(const fs::path& checkpoint, std::int64_t step, int rank, int size,
                     double longest) noexcept {
  if (!reader_->begin(step, longest)) return;
  const std::string problem = error_of([&] {
    if (thread_.joinable()) thread_.join();
    thread_ = std::thread([reader = reader_, task = Reader::Task{checkpoint, step, rank, size}] {
      reader->run(task);
    });
  });
  if (!problem.empty()) reader_->end(false);  // without a thread nothing is known
}

void ReadBack::cancel() noexcept { reader_->cancel(); }
Finding ReadBack::finding() const noexcept { return reader_->finding(); }
bool ReadBack::is_whole() const noexcept { return reader_->is_whole(); }
void ReadBack::forget_last() noexcept { reader_->forget_last(); }
void ReadBack::forget_damage(std::int64_t step) noexcept { reader_->forget_damage(step); }
double ReadBack::seconds() const noexcept { return reader_->seconds(); }

}  // namespace lockstep::checkpoint
