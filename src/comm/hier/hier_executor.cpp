#include "comm/hier/hier_executor.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "lockstep/comm/errors.hpp"

namespace lockstep::comm::hier {
namespace {

std::vector<int> numbers_below(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

HierExecutor::HierExecutor(HostLayout layout, Parts parts, std::string group, bool check_signatures)
    : layout_(std::move(layout)),
      parts_(std::move(parts)),
      group_(std::move(group)),
      check_signatures_(check_signatures),
      signatures_(static_cast<std::size_t>(size())),
      all_ranks_(numbers_below(size())),
      in_background_(parts_.between.get()),
      beside_(parts_.inside.get()) {}

// A rank that hears of an abort tells those that wait for it in other ways.
void HierExecutor::run(std::span<const Operation> operations, const host::Deadline& deadline) {
  try {
    set_deadlines(operations, deadline);
    run_messages(operations, deadline);
    for (const Operation& operation : operations)
      if (!operation.is_point_to_point()) run_collective(operation, deadline);
  } catch (const PeerFailure& failure) {
    abort(failure.what());
    throw;
  }
}

// Whoever is waited for may wait by itself. A host knows first which of its ranks is late, then its
// leader is missed by the others', then those by their ranks.
void HierExecutor::set_deadlines(std::span<const Operation> operations,
                                 const host::Deadline& deadline) {
  using namespace std::chrono_literals;
  const auto grace = std::min<host::Clock::duration>(1s, timeout_of(operations) / 2);
  const auto by_messages = [this] { parts_.messages->check(); };
  arrival_.emplace(deadline, 0s, by_messages);
  inside_.emplace(deadline, 2 * grace, by_messages);
  exchange_.emplace(deadline, grace, [this] { check(); });
  background_.emplace(deadline, grace);
}

void HierExecutor::check() {
  parts_.messages->check();
  if (parts_.inside) parts_.inside->check();
}

void HierExecutor::abort(const std::string& reason) noexcept {
  if (parts_.inside) parts_.inside->abort(reason);
  if (parts_.between) parts_.between->abort(reason);
  parts_.messages->abort(reason);
}

void HierExecutor::quiesce() {
  in_background_.drain();
  beside_.drain();
  if (parts_.between) parts_.between->quiesce();
  if (parts_.inside) parts_.inside->quiesce();
  parts_.messages->quiesce();
}

std::vector<host::Unreceived> HierExecutor::unreceived() {
  std::vector<host::Unreceived> messages = parts_.messages->unreceived();
  if (parts_.inside) std::ranges::move(parts_.inside->unreceived(), std::back_inserter(messages));
  return messages;
}

std::unique_ptr<host::Executor> HierExecutor::split(const SplitPlan& plan) {
  std::vector<int> host_of_rank(static_cast<std::size_t>(size()));
  for (std::size_t host = 0; host < layout_.hosts.size(); ++host)
    for (const int rank : layout_.hosts[host])
      host_of_rank[static_cast<std::size_t>(rank)] = static_cast<int>(host);
  auto messages = parts_.messages->split(plan);
  return compose(*parts_.messages, std::move(messages), host_of_rank, plan, check_signatures_);
}

// --- what each part runs -------------------------------------------------------------------------

// All messages of a batch come before its collectives.
void HierExecutor::run_messages(std::span<const Operation> operations,
                                const host::Deadline& deadline) {
  std::vector<Operation> near, far;
  for (const Operation& operation : operations) {
    if (!operation.is_point_to_point()) continue;
    const auto place = std::ranges::find(layout_.own(), operation.peer);
    const bool is_near = place != layout_.own().end();
    Operation& message = (is_near ? near : far).emplace_back(operation);
    message.sequence = operations.front().sequence;
    if (is_near) message.peer = static_cast<int>(place - layout_.own().begin());
  }
  if (far.empty() && near.empty()) return;
  if (near.empty()) return parts_.messages->run(far, deadline);
  if (!far.empty()) return run_on_both_ways(std::move(near), far, deadline);
  near_.emplace(
      deadline, host::Clock::duration{}, [this] { parts_.messages->check(); }, layout_.own());
  by_places([&] { parts_.inside->run(near, *near_); });
}

// Side by side: who is met on the one way may wait for one on the other.
void HierExecutor::run_on_both_ways(std::vector<Operation> near, std::span<const Operation> far,
                                    const host::Deadline& deadline) {
  near_.emplace(deadline, host::Clock::duration{}, nullptr, layout_.own());
  beside_.start(std::move(near), *near_);
  const host::Deadline until(
      deadline, {}, [this] { by_places([this] { beside_.check(); }); }, all_ranks_);
  parts_.messages->run(far, until);
  by_places([this] { beside_.wait(0, [this] { parts_.messages->check(); }); });
}

// The first step waits for ranks that have not come, the others for what their leader waits for.
void HierExecutor::run_inside(const Operation& operation) {
  if (!parts_.inside) return;
  const host::Deadline& deadline = std::exchange(has_arrived_, true) ? *inside_ : *arrival_;
  by_places([&] { parts_.inside->run({&operation, 1}, deadline); });
}

void HierExecutor::by_places(FunctionRef<void()> run) {
  const auto rank_at = [&](int place) { return layout_.own()[static_cast<std::size_t>(place)]; };
  try {
    run();
  } catch (const host::TransferTimeout& timeout) {
    std::vector<int> ranks;
    std::ranges::transform(timeout.missing, std::back_inserter(ranks), rank_at);
    throw host::TransferTimeout{std::move(ranks), timeout.may_wait_themselves};
  } catch (const host::PeerGone& gone) {
    throw host::PeerGone{rank_at(gone.peer), gone.is_seen_by_few, gone.how};
  }
}

// Of another host all may be late.
void HierExecutor::by_leaders(FunctionRef<void()> exchange) {
  try {
    exchange();
  } catch (const host::TransferTimeout& timeout) {
    std::vector<int> ranks;
    for (const int host : timeout.missing)
      std::ranges::copy(layout_.hosts[static_cast<std::size_t>(host)], std::back_inserter(ranks));
    std::ranges::sort(ranks);
    throw host::TransferTimeout{std::move(ranks), timeout.may_wait_themselves};
  } catch (const host::PeerGone& gone) {
    throw host::PeerGone{layout_.hosts[static_cast<std::size_t>(gone.peer)].front(),
                         gone.is_seen_by_few, gone.how};
  }
}

void HierExecutor::run_between(const Operation& operation) {
  if (parts_.between) by_leaders([&] { parts_.between->run({&operation, 1}, *exchange_); });
}

void HierExecutor::start_between(Operation operation) {
  if (parts_.between) in_background_.start({std::move(operation)}, *background_);
}

void HierExecutor::await_between(std::uint64_t left) {
  if (parts_.between) by_leaders([&] { in_background_.wait(left, [this] { check(); }); });
}

}  // namespace lockstep::comm::hier
