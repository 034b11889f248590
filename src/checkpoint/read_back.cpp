#include "checkpoint/read_back.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "checkpoint/background_thread.hpp"
#include "checkpoint/contents.hpp"
#include "checkpoint/exchange.hpp"
#include "checkpoint/verify_blocks.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/file_error.hpp"
#include "lockstep/observe/log.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

std::size_t blocks_of(const Manifest& manifest) {
  std::size_t blocks = 0;
  for (const FileRecord& file : manifest.files) blocks += file.checksums.size();
  return blocks;
}

/// What rank `number` begins with; of `size` ranks.
std::size_t first_of(std::size_t blocks, int number, int size) {
  return blocks * static_cast<std::size_t>(number) / static_cast<std::size_t>(size);
}

}  // namespace

ReadBack::~ReadBack() {
  cancel();
  if (thread_.joinable()) thread_.join();
}

void ReadBack::start(const fs::path& checkpoint, int rank, int size, double longest) noexcept {
  {
    const std::lock_guard lock(mutex_);
    verdict_ = Verdict::unknown;
    if (is_running_) return;
  }
  error_of([&] {  // without a thread nothing is known
    if (thread_.joinable()) thread_.join();
    throttle_.begin(longest);
    is_cancelled_ = false;
    is_running_ = true;
    try {
      thread_ = std::thread([this, checkpoint, rank, size] { run(checkpoint, rank, size); });
    } catch (...) {
      is_running_ = false;
      throw;
    }
  });
}

void ReadBack::cancel() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
  }
  throttle_.hurry();
}

Verdict ReadBack::verdict() const noexcept {
  const std::lock_guard lock(mutex_);
  return verdict_;
}

Verdict ReadBack::take_verdict() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(verdict_, Verdict::unknown);
}

bool ReadBack::goes_on() const noexcept {
  const std::lock_guard lock(mutex_);
  return !is_cancelled_;
}

// What cannot be opened may be away for a while only, or seen later than by who wrote it.
void ReadBack::run(const fs::path& checkpoint, int rank, int size) noexcept {
  yield_to_training();
  const auto start = std::chrono::steady_clock::now();
  Verdict found = Verdict::unknown;
  std::string problem = error_of([&] {
    try {
      found = read(checkpoint, rank, size);
    } catch (const CorruptData&) {
      found = Verdict::damaged;
      throw;
    } catch (const io::FileError& error) {
      if (error.status() == EIO) found = Verdict::damaged;
      throw;
    }
  });
  bool is_wanted = false;
  {
    const std::lock_guard lock(mutex_);
    is_wanted = !is_cancelled_;
    if (is_wanted) verdict_ = found;
  }
  if (found == Verdict::whole)
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (is_wanted && !problem.empty())
    error_of([&] {
      LOCKSTEP_LOG(warning, "read back, ", checkpoint.string(),
                   found == Verdict::damaged ? " is damaged: " : " cannot be read: ", problem);
    });
  const std::lock_guard lock(mutex_);
  is_running_ = false;
}

/// @throws CorruptData for damage; io::FileError.
Verdict ReadBack::read(const fs::path& checkpoint, int rank, int size) {
  const Manifest manifest = read_manifest(checkpoint);
  const std::size_t blocks = blocks_of(manifest);
  std::size_t first = first_of(blocks, rank, size), last = first_of(blocks, rank + 1, size);
  double before = processor_seconds();
  const auto goes_on = [&] {
    throttle_.spend(processor_seconds() - before);
    throttle_.rest();
    before = processor_seconds();
    return this->goes_on();
  };
  for (const FileRecord& file : manifest.files) {
    const std::size_t count = file.checksums.size();
    const std::size_t begin = std::min(first, count), end = std::min(last, count);
    if (begin < end || (count == 0 && rank == 0)) {
      const std::vector<Damage> damage =
          verify_blocks(checkpoint, manifest, file, begin, end, From::disk, goes_on);
      LOCKSTEP_CHECK(damage.empty(), CorruptData, describe(damage.front()));
    }
    first -= begin;
    last -= end;
  }
  return this->goes_on() ? Verdict::whole : Verdict::unknown;
}

}  // namespace lockstep::checkpoint
