#include <algorithm>
#include <sstream>
#include <utility>

#include "comm/nccl/nccl_backend.hpp"
#include "comm/poll_pause.hpp"
#include "lockstep/core/error.hpp"
#include "runtime/cuda/device_guard.hpp"

// What a group over NCCL does about failures, its own and others', and about members that leave.

namespace lockstep::comm {
namespace {

constexpr auto monitor_period = std::chrono::milliseconds(50);

}  // namespace

void NcclBackend::abort(const std::string& reason) noexcept {
  if (has_left_) return;
  group_->note_told();
  fail_under_way(Failure::from_peer(reason));
}

// For the monitor to act on: to ask the device what is under way may take a while.
void NcclBackend::group_failed(const std::string& reason) noexcept {
  if (has_left_) return;
  others_know_ = true;
  {
    const std::lock_guard lock(news_mutex_);
    news_ = reason;
  }
  wake_.notify_all();
}

void NcclBackend::job_failed(const std::string& reason) noexcept {
  if (has_left_) return;
  others_know_ = true;
  group_->abort(Failure::from_peer(reason));
}

// With the mutex held, so that what is submitted meanwhile is either counted as lost or finds that
// the group has failed.
void NcclBackend::fail_under_way(const Failure& failure) noexcept {
  try {
    const CudaDeviceGuard guard(device().index);
    const std::lock_guard lock(mutex_);
    if (group_->has_failed()) return;
    if (!StepRecording::is_any_open()) retire_completed();
    for (const WorkPtr& work : in_flight_) work->note_failure();
    group_->abort(failure, NcclGroup::Lost::under_way);
  } catch (...) {  // the device does not tell
    group_->abort(failure);
  }
}

void NcclBackend::announce_failure() {
  const auto failure = group_->failure();
  if (failure && !others_know_.exchange(true)) membership_.fail(failure->message());
}

// The device is not asked here: a call that waits for what hangs may keep the driver to itself.
std::string NcclBackend::as_of() const {
  const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - last_look_.load());
  return age < 2 * monitor_period ? "" : std::to_string(age.count()) + " ms ago ";
}

// With the mutex held.
std::string NcclBackend::doing(Words words) const {
  const auto text = [words](const NcclWork& work) {
    return words == Words::all ? work.full_description() : work.description();
  };
  if (in_flight_.empty() && !ended_.last()) return "idle, no operation so far";
  if (in_flight_.empty()) return "idle after " + text(*ended_.last());
  return as_of() + "in " + text(*in_flight_.front()) + ", " +
         std::to_string(in_flight_.size() - 1) + " more queued";
}

// The monitor may have the mutex while the driver keeps it waiting: whoever asks has more to do.
std::string NcclBackend::describe_progress() const {
  constexpr auto longest_wait = std::chrono::milliseconds(200);
  const auto deadline = std::chrono::steady_clock::now() + longest_wait;
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (PollPause polling; !lock && std::chrono::steady_clock::now() < deadline; polling.pause())
    lock.try_lock();
  if (!lock)
    return "rank " + std::to_string(rank()) + " of " + name() +
           ": the driver of its device does not answer";
  lockstep::detail::TextStream out;
  out << "rank " << rank() << " of " << name() << ": " << doing(Words::all) << "; "
      << ended_.share();
  if (const auto failure = group_->failure()) out << "; failed: " << failure->message();
  out << ended_.lines(in_flight_.empty() ? 1 : 0);
  return out.str();
}

// Whatever it meets is the group's failure, for whoever waits next: not the end of the process.
void NcclBackend::monitor() noexcept {
  try {
    // Events are asked on a thread that has chosen no device; the driver would set up the first.
    const CudaDeviceGuard guard(device().index);
    watch();
  } catch (...) {
    Failure failure = Failure::from_current();
    failure.add_context(describe_progress());
    group_->abort(failure);
  }
}

void NcclBackend::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait_for(lock, monitor_period, [&] { return stopping_ || has_news(); });
    if (stopping_) return;
    lock.unlock();
    obey_news();
    if (comparison_) comparison_->flush();
    group_->poll_background();
    if (!StepRecording::is_any_open()) check_in_flight();  // a moment, and then again
    ask();
    answer();
    announce_failure();
    lock.lock();
  }
}

bool NcclBackend::has_news() {
  const std::lock_guard lock(news_mutex_);
  return news_ || !questions_.empty() || !left_news_.empty();
}

void NcclBackend::obey_news() {
  std::unique_lock lock(news_mutex_);
  const auto reason = std::exchange(news_, std::nullopt);
  const auto departures = std::exchange(left_news_, {});
  lock.unlock();
  obey_departures(departures);
  if (reason) fail_under_way(Failure::from_peer(*reason));
}

void NcclBackend::check_in_flight() {
  if (const auto failure = failure_in_flight()) fail_under_way(*failure);
}

// With the mutex held, and no capture open: events are asked.
void NcclBackend::retire_completed() {
  while (!in_flight_.empty() && in_flight_.front()->is_completed()) {
    ended_.add(std::move(in_flight_.front()));
    in_flight_.pop_front();
  }
  last_look_ = std::chrono::steady_clock::now();
}

// The first operation that has not ended is the one under way.
std::optional<Failure> NcclBackend::failure_in_flight() {
  const std::lock_guard lock(mutex_);
  if (group_->has_failed()) return std::nullopt;  // what was under way stays so, for messages
  retire_completed();
  running_since_ = NcclGroup::Clock::time_point();
  if (in_flight_.empty()) return std::nullopt;
  if (const auto since = in_flight_.front()->running_since()) running_since_ = *since;
  NcclWork& work = *in_flight_.front();
  const auto context = [&] {
    return "rank " + std::to_string(rank()) + " of " + name() + ", in " + work.full_description() +
           ": ";
  };
  if (const Departure* gone = departures_.before(work.collective()))
    return Failure::from_peer(context() + comm::describe(*gone, name()));
  auto reason = work.overrun();
  if (!reason && !work.is_overdue()) return std::nullopt;
  if (const Departure* gone = departures_.among(work.partners()))
    return Failure::from_peer(context() + comm::describe(*gone, name()));
  if (!reason) reason = failure_of_overdue(work);
  if (!reason) return std::nullopt;
  return Failure::timeout(context() + *reason);
}

// As of the monitor's last look: the device is not asked.
NcclGroup::Clock::duration NcclBackend::running_for() const noexcept {
  const auto since = running_since_.load(std::memory_order_relaxed);
  if (since == NcclGroup::Clock::time_point() || group_->has_failed()) return {};
  return NcclGroup::Clock::now() - since;
}

// The monitor looks every 50 ms, unless the driver keeps it: then another call has it, which waits
// for what hangs, and nobody else would see that the time is over. The device is not asked here.
void NcclBackend::look_after() noexcept {
  constexpr NcclGroup::Clock::duration longest_turn = std::chrono::seconds(1);  // when not stopped
  constexpr NcclGroup::Clock::duration precedence = std::chrono::seconds(5);    // the monitor's
  const auto now = NcclGroup::Clock::now(), look = last_look_.load();
  const auto turn = std::min(now - std::exchange(silence_.turn, now), longest_turn);
  const bool has_looked = look != std::exchange(silence_.last_look, look);
  silence_.length =
      has_looked || StepRecording::is_any_open() ? turn.zero() : silence_.length + turn;
  if (has_left_ || silence_.length < longest_timeout_.load() + precedence) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(silence_.length).count();
  group_->abort(Failure::timeout("rank " + std::to_string(rank()) + " of " + name() +
                                 ": the driver of its device has not answered for " +
                                 std::to_string(seconds) +
                                 " s, so it is in a call that waits for an operation that hangs"));
}

// The monitor acts on it, once what the others did join has ended.
void NcclBackend::member_left(const Departure& departure) {
  if (departure.rank < 0 || departure.rank >= size()) return;
  {
    const std::lock_guard lock(news_mutex_);
    left_news_.push_back(departure);
    inquiry_.note_left(departure.rank);
  }
  wake_.notify_all();
}

void NcclBackend::obey_departures(std::span<const Departure> departures) {
  if (departures.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const Departure& departure : departures) departures_.add(departure);
  for (const WorkPtr& work : in_flight_) limit_wait_for_the_gone(*work);
}

// What a rank sent before it left is on its way, and taken out once this rank's device comes to it.
// Which messages of a group have come, NCCL does not say: as long as one of its ranks is there, all
// of it may be waiting for that one.
void NcclBackend::limit_wait_for_the_gone(NcclWork& work) {
  constexpr auto wait_for_the_gone = std::chrono::milliseconds(500);
  const auto is_gone = [&](int rank) { return departures_.among({&rank, 1}) != nullptr; };
  if (!work.partners().empty() && std::ranges::all_of(work.partners(), is_gone))
    work.limit_run(wait_for_the_gone);
}

bool NcclBackend::is_under_way() {
  const std::lock_guard lock(mutex_);
  return !std::ranges::all_of(in_flight_, &NcclWork::is_completed);
}

// Leaves once what this rank joined has ended: the others may abort when they hear of it, and with
// the group they end what is still under way here. However much else the device has to do first, it
// is waited for; what then does not end the monitor makes a failure, though nobody waits for it.
void NcclBackend::drain() {
  if (std::uncaught_exceptions() > 0 && group_->has_failed()) return;
  const auto is_idle = [&] {
    const std::lock_guard lock(mutex_);
    const auto first = std::ranges::find_if_not(in_flight_, &NcclWork::is_completed);
    if (first == in_flight_.end()) return true;
    (*first)->limit_run(options().leave_timeout);
    return false;
  };
  for (PollPause polling; !is_idle();) polling.pause();
  if (!group_->has_failed()) membership_.leave({rank(), sequence_});
}

}  // namespace lockstep::comm
