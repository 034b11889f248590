#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/failure.hpp"
#include "comm/operation.hpp"
#include "comm/signature.hpp"
#include "comm/staged/staged_buffers.hpp"
#include "lockstep/comm/work.hpp"
#include "lockstep/runtime/event.hpp"

namespace lockstep::comm::staged {

/// An operation on device memory, or a batch of them, on its way through the host.
class StagedWork final : public WorkState {
 public:
  /// Moves from the operations, at least one, which have their numbers.
  StagedWork(std::span<Operation> operations, int rank, Device device);
  /// A failure that no caller was told is kept (see runtime/background_failure.hpp).
  ~StagedWork() override;

  /// True if a later one reads what this one writes: then it must not be copied before.
  bool writes_what_is_read_by(const StagedWork& later) const;
  /// Queues the copies to the host, behind what the stream holds, unless that is done.
  void copy_in(StreamRef stream);
  /// True once they have ended.
  bool is_copied_in() const { return copied_in_.query(); }
  /// The exchange between the ranks begins. @return what the host has to carry out, once.
  std::span<Operation> start();
  /// Queues the copies of the results; who waits on a stream goes on.
  void copy_back(StreamRef stream);
  /// True once they have ended.
  bool is_copied_back() const { return copied_back_.query(); }
  /// It has ended, with or without a failure: wakes who waits, and gives the host's memory back.
  void finish(std::optional<Failure> failure = std::nullopt);

  void wait() override;
  void synchronize() override;
  bool is_completed() const override;
  std::exception_ptr exception() const override;
  std::optional<WorkTimes> times() const override;
  void release_memory() noexcept override;

  /// What it is, for messages.
  std::string description() const { return describe(first_, count_); }
  /// How long it may take.
  std::chrono::milliseconds timeout() const { return timeout_; }
  /// What it is doing, for messages.
  std::string state() const;
  /// True once the ranks have exchanged it, or it has failed.
  bool is_exchanged() const { return stage() >= Stage::copying_back; }
  /// True as long as the device has not come to it.
  bool waits_for_device() const { return stage() == Stage::copying_in; }

 private:
  enum class Stage : std::uint8_t { copying_in, exchanging, copying_back, ended };

  Stage stage() const { return stage_.load(std::memory_order_acquire); }
  void abandon_copies() noexcept;
  void reach(Stage stage);
  void block_until(Stage stage) const;
  void raise_if_failed();
  bool is_off_the_device() const noexcept;

  const Signature first_;
  const std::size_t count_;
  const std::chrono::milliseconds timeout_;
  const Device device_;
  std::vector<Operation> operations_;
  std::vector<StagedBuffers> buffers_;
  std::vector<std::span<const std::byte>> reads_, writes_;  // of the device's memory
  Event copied_in_, copied_back_;
  std::optional<StreamRef> inward_, outward_;  // with copies on them
  WorkTimes times_;
  std::optional<Failure> failure_;
  std::atomic<Stage> stage_{Stage::copying_in};
};

}  // namespace lockstep::comm::staged
