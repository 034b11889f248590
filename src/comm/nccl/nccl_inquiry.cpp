#include <algorithm>
#include <utility>

#include "comm/nccl/nccl_backend.hpp"

// Who holds up what is overdue. NCCL does not tell, so the monitors of the members ask each other,
// beside NCCL and without waiting: who is asked may be stopped, or stuck in the driver.

namespace lockstep::comm {

// With the mutex held. None while the others are being asked.
std::optional<std::string> NcclBackend::failure_of_overdue(NcclWork& work) {
  const auto now = Inquiry::Clock::now();
  const std::string text = "timed out after " + std::to_string(work.timeout().count()) + " ms, ";
  if (!work.running_since())
    return text +
           "before the device came to it: what this rank gave the device before has not ended";
  const std::lock_guard lock(news_mutex_);
  inquiry_.begin(work.collective().value_or(work.sequence()), work.deadline(), now);
  if (!inquiry_.is_over(now)) return std::nullopt;
  return text + inquiry_.result(
                    work.collective() ? std::span<const int>() : work.partners(),
                    work.is_launch() ? Inquiry::Begun::captured_step : Inquiry::Begun::operation);
}

void NcclBackend::ask() {
  std::optional<std::uint64_t> collective;
  {
    const std::lock_guard lock(news_mutex_);
    collective = inquiry_.take_question();
  }
  if (!collective) return;
  const bool is_heard = membership_.ask_who_is_behind(*collective);
  const std::lock_guard lock(news_mutex_);
  if (is_heard)
    question_ = collective;  // for those that need not ask any more
  else
    inquiry_.give_up();
}

// For the monitor to answer: to ask the device may take a while.
void NcclBackend::member_asks_who_is_behind(std::uint64_t collective) {
  {
    const std::lock_guard lock(news_mutex_);
    question_ = collective;
    inquiry_.note_asked(collective, Inquiry::Clock::now());
  }
  wake_.notify_all();
}

void NcclBackend::member_answers(const Standing& standing) {
  const std::lock_guard lock(news_mutex_);
  inquiry_.add(standing, Inquiry::Clock::now());
}

// Once for all that ask: each of many ranks may.
void NcclBackend::answer() {
  std::optional<std::uint64_t> collective;
  {
    const std::lock_guard lock(news_mutex_);
    collective = std::exchange(question_, std::nullopt);
  }
  if (!collective || group_->has_failed()) return;
  Standing own = standing_in(*collective);
  const auto now = Inquiry::Clock::now();
  if (own == answered_ && now - answered_at_ < Inquiry::answer_timeout) return;
  membership_.answer(own);
  answered_ = std::move(own);
  answered_at_ = now;
}

// While a step is captured the device is not asked.
Standing NcclBackend::standing_in(std::uint64_t collective) {
  const std::lock_guard lock(mutex_);
  Standing own{.rank = rank(), .collective = collective, .is_behind = begun_ <= collective};
  own.doing = doing(Words::few);
  const auto found = std::ranges::find_if(
      in_flight_, [&](const WorkPtr& work) { return work->collective() >= collective; });
  if (own.is_behind || found == in_flight_.end() || StepRecording::is_any_open()) return own;
  own.is_behind = !(*found)->running_since();
  if (own.is_behind && found == in_flight_.begin())
    own.doing = "has called " + (*found)->description() + ", which its device has not come to";
  return own;
}

}  // namespace lockstep::comm
