#include "comm/staged/staged_work.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "runtime/step_recording.hpp"

namespace lockstep::comm::staged {

StagedWork::StagedWork(std::span<Operation> operations, int rank, Device device)
    : first_(operations.front()),
      count_(operations.size()),
      timeout_(timeout_of(operations)),
      device_(device),
      copied_in_(device),
      copied_back_(device) {
  times_.submitted = WorkTimes::Clock::now();
  operations_.reserve(count_);
  buffers_.reserve(count_);
  for (Operation& operation : operations) {
    operations_.push_back(std::move(operation));
    buffers_.emplace_back(operations_.back(), rank);
    reads_.push_back(buffers_.back().reads());
    writes_.push_back(buffers_.back().writes());
  }
}

StagedWork::~StagedWork() {
  if (stage() != Stage::ended) abandon_copies();
  if (failure_) failure_->keep_unless_told();
}

bool StagedWork::writes_what_is_read_by(const StagedWork& later) const {
  const auto overlap = [](std::span<const std::byte> a, std::span<const std::byte> b) {
    const std::less<const std::byte*> before;
    return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
           before(b.data(), a.data() + a.size());
  };
  return std::ranges::any_of(writes_, [&](const auto& written) {
    return std::ranges::any_of(later.reads_,
                               [&](const auto& read) { return overlap(written, read); });
  });
}

void StagedWork::copy_in(StreamRef stream) {
  if (inward_) return;
  inward_ = stream;
  for (const StagedBuffers& buffers : buffers_) buffers.copy_in(stream);
  copied_in_.record(stream);
}

std::span<Operation> StagedWork::start() {
  times_.started = WorkTimes::Clock::now();
  reach(Stage::exchanging);
  return operations_;
}

void StagedWork::copy_back(StreamRef stream) {
  outward_ = stream;
  for (const StagedBuffers& buffers : buffers_) buffers.copy_back(stream);
  copied_back_.record(stream);
  reach(Stage::copying_back);
}

void StagedWork::finish(std::optional<Failure> failure) {
  times_.finished = WorkTimes::Clock::now();
  failure_ = std::move(failure);
  if (failure_) abandon_copies();
  buffers_.clear();
  operations_.clear();
  reach(Stage::ended);
}

// What was queued may still run.
void StagedWork::abandon_copies() noexcept {
  for (const auto& stream : {inward_, outward_})
    for (StagedBuffers& buffers : buffers_)
      if (stream) buffers.note_use(*stream);
}

void StagedWork::reach(Stage stage) {
  stage_.store(stage, std::memory_order_release);
  stage_.notify_all();
}

void StagedWork::block_until(Stage stage) const {
  for (Stage now = this->stage(); now < stage; now = this->stage())
    stage_.wait(now, std::memory_order_acquire);
}

void StagedWork::wait() {
  refuse_in_captured_step("a collective from before it is waited for", "wait before the step");
  block_until(Stage::copying_back);
  raise_if_failed();
  copied_back_.wait(current_stream(device_));
}

void StagedWork::synchronize() {
  refuse_in_captured_step("the host waits for a collective", "let the stream wait()");
  block_until(Stage::ended);
  raise_if_failed();
  copied_back_.query();  // reached: for the calling thread, too
}

void StagedWork::raise_if_failed() {
  if (stage() != Stage::ended || !failure_) return;
  release_memory();
  failure_->raise();
}

// Whoever has read the results is not told that they are on their way; nor does the memory of what
// failed count as free while the device may still copy from it.
bool StagedWork::is_completed() const {
  if (stage() == Stage::ended) return !failure_ || is_off_the_device();
  return stage() == Stage::copying_back && is_copied_back();
}

bool StagedWork::is_off_the_device() const noexcept {
  try {
    return copied_in_.query() && copied_back_.query();
  } catch (...) {
    return true;  // the device has failed: nothing runs on it any more
  }
}

// Of one that failed, copies may come yet.
void StagedWork::release_memory() noexcept {
  try {
    copied_in_.wait(current_stream(device_));
    if (stage() >= Stage::copying_back) copied_back_.wait(current_stream(device_));
  } catch (...) {
    // The device has failed: nothing runs on it any more.
  }
}

std::exception_ptr StagedWork::exception() const {
  return stage() == Stage::ended && failure_ ? failure_->as_exception() : nullptr;
}

std::optional<WorkTimes> StagedWork::times() const {
  if (!is_completed()) return std::nullopt;
  block_until(Stage::ended);  // a moment, until the worker has seen it, too
  if (failure_) return std::nullopt;
  return times_;
}

std::string StagedWork::state() const {
  switch (stage()) {
    case Stage::copying_in: return "waits for the device to come to " + description();
    case Stage::exchanging: return "exchanges " + description();
    case Stage::copying_back: return "copies results of " + description() + " to the device";
    case Stage::ended: break;
  }
  return "is done with " + description();
}

}  // namespace lockstep::comm::staged
