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
  inquiry_.begin(work.collective().value_or(work.sequence()), work.deadline(),
                 work.collective() ? std::span<const int>() : work.partners(), now);
  if (!inquiry_.is_over(now)) return std::nullopt;
  return text + inquiry_.result(work.is_launch() ? Inquiry::Begun::captured_step
                                                 : Inquiry::Begun::operation);
}

void NcclBackend::ask() {
  std::optional<Inquiry::Question> question;
  {
    const std::lock_guard lock(news_mutex_);
    question = inquiry_.take_question();
  }
  if (!question || group_->has_failed()) return;
  if (membership_.ask_who_is_behind(question->collective, question->whom)) return;
  const std::lock_guard lock(news_mutex_);
  inquiry_.give_up();
}

// For the monitor to answer: to ask the device may take a while.
void NcclBackend::member_asks_who_is_behind(std::uint64_t collective) {
  constexpr std::size_t most = 64;  // messages bear different numbers
  {
    const std::lock_guard lock(news_mutex_);
    if (questions_.size() < most) questions_.insert(collective);
  }
  wake_.notify_all();
}

void NcclBackend::member_answers(const Standing& standing) {
  const std::lock_guard lock(news_mutex_);
  inquiry_.add(standing);
}

void NcclBackend::answer() {
  std::set<std::uint64_t> questions;
  {
    const std::lock_guard lock(news_mutex_);
    questions = std::exchange(questions_, {});
  }
  if (group_->has_failed()) return;
  for (const std::uint64_t collective : questions) membership_.answer(standing_in(collective));
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
