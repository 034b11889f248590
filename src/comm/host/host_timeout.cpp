#include <algorithm>
#include <sstream>

#include "comm/host/host_backend.hpp"
#include "comm/signature.hpp"

// What a wait that did not end in time says of the other ranks. In a tree of ranks a neighbour that
// is late may only wait for another: then the members ask each other who has not begun the
// collective.

namespace lockstep::comm::host {

Failure HostBackend::failure_of_timeout(Operations operations, const TransferTimeout& timeout) {
  std::vector<int> missing = timeout.missing;
  bool may_wait_themselves = timeout.may_wait_themselves;
  if (const auto last = last_collective(operations); last && may_wait_themselves)
    if (std::vector<int> behind = ask_who_is_behind(*last); !behind.empty()) {
      missing = std::move(behind);
      may_wait_themselves = false;
    }
  const std::lock_guard lock(mutex_);
  if (failure_) return *failure_;
  if (const Departure* gone = departures_.among(missing))
    return Failure::from_peer(context(operations) + ": " + comm::describe(*gone, name()));
  std::ostringstream text;
  text << context(operations) << " timed out after " << timeout_of(operations).count()
       << " ms, waiting for rank";
  for (const int peer : missing) text << ' ' << peer;
  if (may_wait_themselves) text << ", which may itself wait for another";
  return Failure::timeout(text.str());
}

// Those that answer first are not all.
std::vector<int> HostBackend::ask_who_is_behind(std::uint64_t collective) {
  constexpr auto answer_timeout = std::chrono::milliseconds(1000),
                 further_answers = std::chrono::milliseconds(200);
  std::vector<int> others;
  for (int other = 0; other < size(); ++other)
    if (other != rank()) others.push_back(other);
  if (!membership_.ask_who_is_behind(collective, others)) return {};
  std::unique_lock lock(mutex_);
  const auto is_known = [&] {
    return failure_ || std::ranges::any_of(
                           behind_, [&](const auto& entry) { return entry.second == collective; });
  };
  if (!member_is_behind_.wait_for(lock, answer_timeout, is_known)) return {};
  member_is_behind_.wait_for(lock, further_answers, [&] { return failure_.has_value(); });
  std::vector<int> ranks;
  for (const auto& [rank, lacks] : behind_)
    if (lacks == collective) ranks.push_back(rank);
  std::ranges::sort(ranks);
  const auto [first, last] = std::ranges::unique(ranks);
  ranks.erase(first, last);
  return ranks;
}

void HostBackend::member_asks_who_is_behind(std::uint64_t collective) {
  const std::lock_guard lock(mutex_);
  asked_ = collective;
  wake_.notify_all();
}

// Each rank says so of a few collectives at most: those at whose end the others ask.
void HostBackend::member_answers(const Standing& standing) {
  const std::size_t most = 8 * static_cast<std::size_t>(size());
  const std::lock_guard lock(mutex_);
  if (standing.is_behind && behind_.size() < most)
    behind_.emplace_back(standing.rank, standing.collective);
  member_is_behind_.notify_all();
}

// The progress thread answers once it has nothing to do: a rank in an operation is not behind, or
// waits itself.
void HostBackend::answer_who_is_behind(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t collective = *asked_;
  asked_.reset();
  if (begun_ > collective) return;
  lock.unlock();
  membership_.answer({.rank = rank(), .collective = collective, .is_behind = true});
  lock.lock();
}

}  // namespace lockstep::comm::host
