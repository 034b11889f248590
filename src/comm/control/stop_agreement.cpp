#include "comm/control/stop_agreement.hpp"

#include <algorithm>
#include <charconv>

#include "lockstep/core/error.hpp"

namespace lockstep::comm::control {
namespace {

constexpr std::int64_t max_step = std::int64_t{1} << 62;
constexpr std::int64_t max_age_ms = std::int64_t{1} << 40;

// Reads a number, and takes it off the text.
std::optional<std::int64_t> take_number(std::string_view& text, std::int64_t least,
                                        std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || value < least || value > most) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// A text that is a number and nothing else.
std::optional<std::int64_t> number_in(std::string_view text, std::int64_t least) {
  const auto value = take_number(text, least, max_step);
  return text.empty() ? value : std::nullopt;
}

}  // namespace

StopAgreement::StopAgreement(int rank, int size, Send send)
    : rank_(rank), send_(std::move(send)), answers_(static_cast<std::size_t>(size)) {}

void StopAgreement::request(const std::string& reason, Clock::time_point since) {
  const std::lock_guard lock(mutex_);
  if (since_) return;
  since_ = since;
  reason_ = reason;
  if (is_hub()) return ask();
  send_({MessageType::stop_request, 0, request_text()});
}

bool StopAgreement::receive(int rank, const Message& message) {
  const std::lock_guard lock(mutex_);
  const bool is_asked = is_asked_.load();
  switch (message.type) {
    case MessageType::stop_request:
      if (!is_hub()) return false;
      if (is_asked) return true;  // several were told to stop; the first one counts
      if (!note_request(message.text)) return false;
      ask();
      return true;
    case MessageType::stop_question:
      if (is_hub() || is_asked || !note_request(message.text)) return false;
      answer();
      send_({MessageType::stop_answer, 0, std::to_string(answer_)});
      return true;
    case MessageType::stop_answer: {
      const auto completed = number_in(message.text, none);
      return is_hub() && is_asked && completed && take_answer(rank, *completed);
    }
    case MessageType::stop_decision: {
      const auto step = number_in(message.text, 0);
      return !is_hub() && is_asked && step && conclude(*step);
    }
    default: return false;
  }
}

std::string StopAgreement::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

std::optional<StopAgreement::Clock::time_point> StopAgreement::since() const {
  const std::lock_guard lock(mutex_);
  return since_;
}

// --- with the mutex held
// ----------------------------------------------------------------------------

// Clocks of hosts differ, so the age goes round: "140 rank 2 got SIGTERM", in milliseconds.
std::string StopAgreement::request_text() const {
  const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - *since_);
  return std::to_string(std::max<std::int64_t>(age.count(), 0)) + " " + reason_;
}

// Rank 0's words count, also where this rank was told to stop as well.
bool StopAgreement::note_request(std::string_view text) {
  const auto age = take_number(text, 0, max_age_ms);
  if (!age || !text.starts_with(' ')) return false;
  const auto since = Clock::now() - std::chrono::milliseconds(*age);
  since_ = since_ ? std::min(*since_, since) : since;
  reason_ = text.substr(1);
  return true;
}

void StopAgreement::ask() {
  answer();
  send_({MessageType::stop_question, 0, request_text()});
  take_answer(0, answer_);
}

// A step that is completed from here on waits for the decision.
void StopAgreement::answer() {
  is_asked_.store(true);
  answer_ = completed_.load();
}

bool StopAgreement::take_answer(int rank, std::int64_t completed) {
  auto& answer = answers_.at(static_cast<std::size_t>(rank));
  if (answer) return false;
  answer = completed;
  if (std::ranges::all_of(answers_, [](const auto& each) { return each.has_value(); })) decide();
  return true;
}

void StopAgreement::decide() {
  const std::int64_t step = **std::ranges::max_element(answers_) + 1;
  send_({MessageType::stop_decision, 0, std::to_string(step)});
  conclude(step);
}

bool StopAgreement::conclude(std::int64_t step) {
  if (stop_step_ || step <= answer_) return false;
  stop_step_ = step;
  decided_.notify_all();
  return true;
}

// --- the training thread's side
// ----------------------------------------------------------------------------

void StopAgreement::refuse(std::int64_t step) const {
  LOCKSTEP_THROW(InvalidArgument, "a stop request heard of step ", step, " after step ",
                 completed_.load() - before_,
                 "; steps count from 0 or more and go up, over all epochs");
}

bool StopAgreement::wait_for_decision(std::int64_t step) {
  std::unique_lock lock(mutex_);
  if (step <= answer_) return false;
  decided_.wait(lock, [this] { return stop_step_.has_value(); });
  if (step < *stop_step_) return false;
  has_stopped_.store(true);
  return true;
}

}  // namespace lockstep::comm::control
