#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/control_message.hpp"

namespace lockstep::comm::control {

/// By which the ranks of a job stop after the same step, without a collective. Whoever is asked to
/// stop tells rank 0, which asks all ranks how far they are. A rank answers with the last step that
/// it has completed, and goes on for no more than one step until it hears the decision: the step
/// behind the latest of all. None has completed that one, so all can stop there, whether
/// collectives couple them or not. Answers come from the control channel's thread, so a rank may be
/// anywhere.
class StopAgreement {
 public:
  using Clock = std::chrono::steady_clock;
  /// To rank 0 from the others, from rank 0 to all others.
  using Send = std::function<void(const Message&)>;

  StopAgreement(int rank, int size, Send send);
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  /// Asks for a stop; the first one of a job counts. From any thread.
  /// @param reason what people read: "rank 2 got SIGTERM"
  /// @param since when it happened
  void request(const std::string& reason, Clock::time_point since = Clock::now());

  /// Takes a message of another rank. False if it makes no sense. On the channel's thread.
  [[nodiscard]] bool receive(int rank, const Message& message);

  /// Steps count anew from here. On the thread that calls `after`; every rank must call it behind
  /// the same step.
  void begin() { before_ = completed_.load() + 1; }

  /// Notes that this rank has completed a step; waits for the decision if one is under way and this
  /// step is later than the rank's answer. One thread. @throws InvalidArgument for a step that is
  /// negative, or not later than the one before.
  /// @return whether to stop after this step.
  bool after(std::int64_t step) {
    const std::int64_t number = before_ + step;
    if (step < 0 || number <= completed_.load(std::memory_order_relaxed)) refuse(step);
    completed_.store(number);  // before it looks: the thread that asks does it the other way round
    return is_asked_.load() && wait_for_decision(number);
  }

  /// Whether `after` has said so.
  bool has_stopped() const { return has_stopped_.load(); }
  /// Why the job is to stop; empty as long as this rank does not know of it.
  std::string reason() const;
  /// When it was asked to; none as long as this rank does not know of it.
  std::optional<Clock::time_point> since() const;

 private:
  static constexpr std::int64_t none = -1;  // no step completed

  [[noreturn]] void refuse(std::int64_t step) const;
  bool wait_for_decision(std::int64_t step);
  bool is_hub() const { return rank_ == 0; }
  bool note_request(std::string_view text);
  void ask();
  void answer();
  bool take_answer(int rank, std::int64_t completed);
  void decide();
  bool conclude(std::int64_t step);
  std::string request_text() const;

  int rank_;
  Send send_;
  std::int64_t before_ = 0;  // steps of those that have counted before
  std::atomic<std::int64_t> completed_{none};
  std::atomic<bool> is_asked_{false}, has_stopped_{false};

  mutable std::mutex mutex_;
  std::condition_variable decided_;
  std::string reason_;
  std::optional<Clock::time_point> since_;
  std::int64_t answer_ = none;                        // what this rank answered
  std::optional<std::int64_t> stop_step_;             // the decision
  std::vector<std::optional<std::int64_t>> answers_;  // rank 0: of all ranks
};

}  // namespace lockstep::comm::control
