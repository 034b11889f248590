#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "comm/host/host_backend.hpp"
#include "comm/signature.hpp"
#include "lockstep/core/error.hpp"

// What a wait that did not end in time says of the other ranks. One that this rank has nothing from
// may only wait for another, as in a tree of ranks, or behind a part of the data: then the members
// ask each other who has not begun the collective.

namespace lockstep::comm::host {

Failure HostBackend::failure_of_timeout(Operations operations, const TransferTimeout& timeout) {
  lockstep::detail::TextStream whom;
  whom << "waiting for rank";
  for (const int peer : timeout.missing) whom << ' ' << peer;
  if (const auto last = last_collective(operations); last && timeout.may_wait_themselves) {
    const std::optional<std::string> behind = ask_who_is_behind(*last);
    if (!behind)
      whom << ", which may itself wait for another";
    else if (behind->empty())
      whom << ", though all ranks have begun it: what connects them may be broken";
    else
      whom.str("waiting for " + *behind);
  }
  const std::lock_guard lock(mutex_);
  if (failure_) return *failure_;
  if (const Departure* gone = departures_.among(timeout.missing))
    return Failure::from_peer(context(operations) + ": " + comm::describe(*gone, name()));
  return Failure::timeout(context(operations) + " timed out after " +
                          std::to_string(timeout_of(operations).count()) + " ms, " + whom.str());
}

// The ranks that have not, or that do not answer: empty if all have. None if nobody can be asked.
// Who has given up first may have ended the group, and be gone.
std::optional<std::string> HostBackend::ask_who_is_behind(std::uint64_t collective) {
  constexpr auto pause = std::chrono::milliseconds(50);
  std::unique_lock lock(mutex_);
  inquiry_.begin(collective, Clock::now(), {}, Clock::now());
  const std::optional<Inquiry::Question> question = inquiry_.take_question();
  lock.unlock();
  if (!question || !membership_.ask_who_is_behind(question->collective, question->whom))
    return std::nullopt;
  lock.lock();
  bool is_connected = true;
  while (!failure_ && !inquiry_.is_over(Clock::now())) {
    answer_who_is_behind(lock);
    member_answers_.wait_for(lock, pause);
    if (!is_connected) continue;
    lock.unlock();
    try {
      executor_->check();
    } catch (const PeerFailure& error) {
      fail(Failure::from_peer(error.what()));
    } catch (...) {  // of a connection that ends, or a library: the time-out is what is told
      is_connected = false;
    }
    lock.lock();
  }
  return inquiry_.missing();
}

// For whoever waits in an operation to answer, or for the progress thread where nobody does.
void HostBackend::member_asks_who_is_behind(std::uint64_t collective) {
  constexpr std::size_t most = 64;
  const std::lock_guard lock(mutex_);
  if (questions_.size() < most) questions_.insert(collective);
  deadline_.ask();
  wake_.notify_all();
  member_answers_.notify_all();
}

void HostBackend::member_answers(const Standing& standing) {
  const std::lock_guard lock(mutex_);
  inquiry_.add(standing);
  member_answers_.notify_all();
}

// With the mutex held, though not while others are told. Also after a failure: who has given up
// first has begun what the others ask for, who else would wait for its word.
void HostBackend::answer_who_is_behind(std::unique_lock<std::mutex>& lock) {
  const std::set<std::uint64_t> questions = std::exchange(questions_, {});
  if (questions.empty()) return;
  Standing own{.rank = rank(), .doing = doing()};
  const std::uint64_t begun = begun_;
  lock.unlock();
  for (const std::uint64_t collective : questions) {
    own.collective = collective;
    own.is_behind = begun <= collective;
    membership_.answer(own);
  }
  lock.lock();
}

std::string HostBackend::doing() const {
  if (running_) return "in " + running_->description();
  return ended_.last() ? "idle after " + ended_.last()->description() : "idle, no operation so far";
}

}  // namespace lockstep::comm::host
