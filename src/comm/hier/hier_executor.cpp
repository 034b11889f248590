#include "comm/hier/hier_executor.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lockstep/comm/errors.hpp"

namespace lockstep::comm::hier {

HierExecutor::HierExecutor(HostLayout layout, Parts parts, std::string group, bool check_signatures)
    : layout_(std::move(layout)),
      parts_(std::move(parts)),
      group_(std::move(group)),
      check_signatures_(check_signatures),
      signatures_(static_cast<std::size_t>(size())),
      in_background_(parts_.between.get()) {}

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
  if (parts_.between) parts_.between->quiesce();
  if (parts_.inside) parts_.inside->quiesce();
  parts_.messages->quiesce();
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

void HierExecutor::run_messages(std::span<const Operation> operations,
                                const host::Deadline& deadline) {
  std::vector<Operation> messages;
  for (const Operation& operation : operations)
    if (operation.is_point_to_point()) messages.push_back(operation);
  if (!messages.empty()) parts_.messages->run(messages, deadline);
}

// The first step waits for ranks that have not come, the others for what their leader waits for.
void HierExecutor::run_inside(const Operation& operation) {
  if (!parts_.inside) return;
  const auto ranks_of = [&](const std::vector<int>& places) {
    std::vector<int> ranks;
    for (const int place : places) ranks.push_back(layout_.own()[static_cast<std::size_t>(place)]);
    return ranks;
  };
  try {
    parts_.inside->run({&operation, 1}, std::exchange(has_arrived_, true) ? *inside_ : *arrival_);
  } catch (const host::TransferTimeout& timeout) {
    throw host::TransferTimeout{ranks_of(timeout.missing)};
  } catch (const host::PeerGone& gone) {
    throw host::PeerGone{ranks_of({gone.peer}).front()};
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
    throw host::TransferTimeout{std::move(ranks)};
  } catch (const host::PeerGone& gone) {
    throw host::PeerGone{layout_.hosts[static_cast<std::size_t>(gone.peer)].front()};
  }
}

void HierExecutor::run_between(const Operation& operation) {
  if (parts_.between) by_leaders([&] { parts_.between->run({&operation, 1}, *exchange_); });
}

void HierExecutor::start_between(Operation operation) {
  if (parts_.between) in_background_.start(std::move(operation), *background_);
}

void HierExecutor::await_between(std::uint64_t left) {
  if (parts_.between) by_leaders([&] { in_background_.wait(left, [this] { check(); }); });
}

}  // namespace lockstep::comm::hier
