#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "comm/communicator_backend.hpp"
#include "comm/operation.hpp"
#include "lockstep/comm/work.hpp"

namespace lockstep::comm {

/// Work of a batch, from before it starts.
class BatchWork final : public WorkState {
 public:
  void start(Work work) {
    work_ = std::move(work);
    stage_.store(Stage::started, std::memory_order_release);
  }
  /// It will never start.
  void give_up() noexcept { stage_.store(Stage::given_up, std::memory_order_release); }

  void wait() override { started().wait(); }
  void synchronize() override { started().synchronize(); }
  bool is_completed() const override {
    const Stage stage = stage_.load(std::memory_order_acquire);
    return stage == Stage::given_up || (stage == Stage::started && work_->is_completed());
  }
  std::exception_ptr exception() const override {
    return is_started() ? work_->exception() : nullptr;
  }
  std::optional<WorkTimes> times() const override {
    return is_started() ? work_->times() : std::nullopt;
  }
  std::optional<WorkTimes::Clock::duration> duration() const override {
    return is_started() ? work_->duration() : std::nullopt;
  }
  void release_memory() noexcept override {
    if (is_started()) work_->release_memory();
  }

 private:
  enum class Stage : std::uint8_t { open, started, given_up };

  const Work& started() const;
  bool is_started() const noexcept {
    return stage_.load(std::memory_order_acquire) == Stage::started;
  }

  std::optional<Work> work_;
  std::atomic<Stage> stage_{Stage::open};
};

/// Operations that shall start as one, while their calls are being made.
class Batch {
 public:
  Batch() = default;
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() {
    if (!is_started_) work_->give_up();
  }

  /// Takes one more; the result stands for the whole batch.
  Work add(Operation operation);
  std::size_t size() const { return operations_.size(); }
  /// Takes all but the first so many away: what was called since will not start.
  void drop_from(std::size_t size) { operations_.resize(size); }
  /// All that was added, or will be.
  Work work() const { return Work(work_); }
  /// Hands all to the backend.
  Work start(CommunicatorBackend& backend);

 private:
  std::vector<Operation> operations_;
  IntrusivePtr<BatchWork> work_ = make_intrusive<BatchWork>();
  bool is_started_ = false;
};

}  // namespace lockstep::comm
