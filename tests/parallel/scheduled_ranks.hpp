#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator_backend.hpp"
#include "comm/failure.hpp"
#include "comm/host/fold.hpp"
#include "comm/signature.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/errors.hpp"

/// @file
/// Ranks as threads of which one runs at a time, in an order drawn from a seed: each seed is one
/// interleaving of what ranks call, of collectives that are carried out, and of failures, and can
/// be repeated.

namespace lockstep::testing {

/// Whose turn it is. A rank goes on until it starts a collective, waits for one, or ends; what
/// comes next is drawn among the ranks that can go on and the collective that all have started.
class Schedule {
 public:
  /// A collective of one rank.
  struct Call {
    comm::Operation operation;
    bool is_done = false;
    std::optional<comm::Failure> failure = std::nullopt;
  };
  using CallPtr = std::shared_ptr<Call>;

  Schedule(int ranks, unsigned seed) : ranks_(static_cast<std::size_t>(ranks)), random_(seed) {}

  /// The calling thread becomes a rank; returns with its first turn.
  void enter(int rank) {
    std::unique_lock lock(mutex_);
    if (++entered_ == static_cast<int>(ranks_.size())) pass_on();
    wait_for_turn(lock, rank);
  }
  /// It calls nothing any more. @param failure of its body.
  void leave(int rank, const std::optional<std::string>& failure) {
    std::unique_lock lock(mutex_);
    if (failure) fail("rank " + std::to_string(rank) + " failed: " + *failure);
    of(rank).has_left = true;
    pass_on();
  }
  CallPtr call(int rank, comm::Operation operation) {
    std::unique_lock lock(mutex_);
    const auto call = std::make_shared<Call>(Call{std::move(operation)});
    call->operation.sequence = of(rank).calls++;
    of(rank).launches.push_back(comm::Signature(call->operation).describe());
    if (failure_)
      end(*call, failure_);
    else
      of(rank).pending.push_back(call);
    next_turn(lock, rank);
    return call;
  }
  /// Returns when the call has ended, with a turn of the rank.
  void wait(int rank, const CallPtr& call) {
    std::unique_lock lock(mutex_);
    of(rank).waits_for = call;
    next_turn(lock, rank);
    of(rank).waits_for = nullptr;
    if (call->failure) call->failure->raise();
  }
  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    fail(reason);
  }

  /// Ranks that waited for each other, if that was how it ended.
  const std::string& deadlock() const { return deadlock_; }
  /// What a rank started, in its own order; also what was carried out never, because ranks failed.
  const std::vector<std::string>& launches(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)].launches;
  }
  /// The first launch of a rank that is another one than rank 0's at that place; empty if there is
  /// none. A rank may have made fewer of them.
  std::string difference_of_launches() const {
    for (int rank = 1; rank < std::ssize(ranks_); ++rank)
      for (std::size_t i = 0; i < std::min(launches(0).size(), launches(rank).size()); ++i)
        if (launches(rank)[i] != launches(0)[i])
          return "rank 0 launched " + launches(0)[i] + ", rank " + std::to_string(rank) + ' ' +
                 launches(rank)[i];
    return {};
  }

 private:
  struct Rank {
    std::deque<CallPtr> pending;
    CallPtr waits_for;
    bool has_left = false;
    std::uint64_t calls = 0;
    std::vector<std::string> launches;
    std::condition_variable turn;
    bool can_go_on() const { return !has_left && (!waits_for || waits_for->is_done); }
  };

  Rank& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  static void end(Call& call, std::optional<comm::Failure> failure) {
    call.failure = std::move(failure);
    call.is_done = true;
  }
  void fail(const std::string& reason) {
    if (!failure_) failure_ = comm::Failure::from_peer(reason);
    for (Rank& rank : ranks_) {
      for (const CallPtr& call : rank.pending) end(*call, failure_);
      rank.pending.clear();
    }
  }
  void wait_for_turn(std::unique_lock<std::mutex>& lock, int rank) {
    of(rank).turn.wait(lock, [&] { return running_ == rank; });
  }
  void next_turn(std::unique_lock<std::mutex>& lock, int rank) {
    pass_on();
    if (running_ != rank) wait_for_turn(lock, rank);
  }

  /// Draws what happens next, until it is a rank's turn.
  void pass_on() {
    running_ = -1;
    while (true) {
      std::vector<int> choices;
      for (int rank = 0; rank < std::ssize(ranks_); ++rank)
        if (of(rank).can_go_on()) choices.push_back(rank);
      const bool all_have_called =
          std::ranges::none_of(ranks_, [](const Rank& rank) { return rank.pending.empty(); });
      if (all_have_called) choices.push_back(-1);
      if (choices.empty()) {
        if (std::ranges::all_of(ranks_, &Rank::has_left)) return;
        end_deadlock();
        continue;
      }
      const int chosen = choices[random_() % choices.size()];
      if (chosen < 0) {
        carry_out();
        continue;
      }
      running_ = chosen;
      of(chosen).turn.notify_one();
      return;
    }
  }

  /// Nobody can go on: ranks wait for what others never start. One that has left is no deadlock.
  void end_deadlock() {
    std::string text = "nobody can go on:";
    bool has_left = false;
    for (const Rank& rank : ranks_) {
      has_left |= rank.has_left;
      text += rank.has_left
                  ? " has left;"
                  : " waits for " + comm::Signature(rank.waits_for->operation).describe() + ";";
    }
    if (!has_left) deadlock_ = text;
    fail(text);
  }

  /// The first call of each rank, which all have made.
  void carry_out() {
    std::vector<CallPtr> calls;
    std::vector<comm::Signature> signatures;
    for (Rank& rank : ranks_) {
      calls.push_back(rank.pending.front());
      signatures.emplace_back(calls.back()->operation);
    }
    try {
      comm::require_agreement(signatures, "world");
    } catch (...) {
      const auto failure = comm::Failure::from_current();
      fail(failure.message());
      return;
    }
    move_data(calls);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      end(*calls[rank], std::nullopt);
      ranks_[rank].pending.pop_front();
    }
  }

  static void move_data(const std::vector<CallPtr>& calls) {
    const comm::Operation& first = calls[0]->operation;
    const std::size_t size = size_of(first.dtype),
                      bytes = static_cast<std::size_t>(first.count) * size;
    if (first.kind == comm::OperationKind::barrier) return;
    std::vector<std::byte> result(bytes);
    if (first.kind == comm::OperationKind::all_gather) {
      std::size_t at = 0;
      for (std::size_t rank = 0; rank < calls.size(); ++rank) {
        const std::size_t part = static_cast<std::size_t>(first.counts[rank]) * size;
        std::memcpy(result.data() + at, calls[rank]->operation.input, part);
        at += part;
      }
    } else if (first.kind == comm::OperationKind::broadcast) {
      std::memcpy(result.data(), calls[static_cast<std::size_t>(first.peer)]->operation.output,
                  bytes);
    } else {
      std::vector<const std::byte*> sources;
      for (const CallPtr& call : calls) sources.push_back(call->operation.input);
      const std::vector<double> factors(calls.size(), 1.0);
      comm::host::fold(first.dtype, first.reduction.kind, {sources, factors}, result.data(),
                       first.count);
    }
    for (std::size_t rank = 0, at = 0; rank < calls.size(); ++rank) {
      const comm::Operation& operation = calls[rank]->operation;
      const bool is_part = first.kind == comm::OperationKind::reduce_scatter;
      const std::size_t part =
          is_part ? static_cast<std::size_t>(first.counts[rank]) * size : bytes;
      std::memcpy(operation.output, result.data() + (is_part ? at : 0), part);
      at += part;
    }
  }

  std::mutex mutex_;
  std::vector<Rank> ranks_;
  std::mt19937 random_;
  int entered_ = 0, running_ = -1;
  std::optional<comm::Failure> failure_;
  std::string deadlock_;
};

/// A group whose ranks take turns.
class ScheduledBackend final : public comm::CommunicatorBackend {
 public:
  ScheduledBackend(Schedule& schedule, int rank, int size)
      : CommunicatorBackend(rank, size, "world", {}), schedule_(schedule) {}

  Device device() const override { return cpu; }
  std::string_view kind() const override { return "scheduled"; }
  comm::Work submit(std::span<comm::Operation> operations) override {
    return comm::Work(make_intrusive<State>(schedule_, rank(),
                                            schedule_.call(rank(), std::move(operations.front()))));
  }
  std::unique_ptr<CommunicatorBackend> split(const comm::SplitPlan&) override { return nullptr; }
  void declare(std::uint64_t, const std::string&) override {}
  void abort(const std::string& reason) noexcept override { schedule_.abort(reason); }
  std::string describe_progress() const override { return {}; }

 private:
  class State final : public comm::WorkState {
   public:
    State(Schedule& schedule, int rank, Schedule::CallPtr call)
        : schedule_(schedule), rank_(rank), call_(std::move(call)) {}
    void wait() override { schedule_.wait(rank_, call_); }
    void synchronize() override { wait(); }
    bool is_completed() const override { return call_->is_done; }
    std::exception_ptr exception() const override {
      return call_->failure ? call_->failure->as_exception() : nullptr;
    }

   private:
    Schedule& schedule_;
    int rank_;
    Schedule::CallPtr call_;
  };

  Schedule& schedule_;
};

/// Runs `body` on ranks that take turns. @return the failure of each rank's body, empty for none.
inline std::vector<std::string> run_scheduled(Schedule& schedule, int ranks,
                                              const std::function<void(Communicator&)>& body) {
  std::vector<std::string> failures(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      schedule.enter(rank);
      std::optional<std::string> failure;
      try {
        const auto group =
            make_intrusive<Communicator>(std::make_unique<ScheduledBackend>(schedule, rank, ranks));
        body(*group);
      } catch (...) {
        failure = comm::Failure::from_current().message();
        failures[static_cast<std::size_t>(rank)] = *failure;
      }
      schedule.leave(rank, failure);
    });
  for (std::thread& thread : threads) thread.join();
  return failures;
}

}  // namespace lockstep::testing
