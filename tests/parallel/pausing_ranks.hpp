#pragma once

#include <chrono>
#include <cstdint>
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
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "support/hang_watchdog.hpp"

/// @file
/// Ranks as threads over their real backend that pause wherever they and it meet. A seed says where
/// and for how long; the system says the rest.

namespace lockstep::testing {

/// When one rank pauses. On its own thread only.
class Pauses {
 public:
  Pauses(std::uint64_t seed, int rank) : random_(seed * 1'000'003 + static_cast<unsigned>(rank)) {
    is_late_ = random_() % 4 == 0;
  }

  /// A pause: often none, or another thread's turn; seldom around the 100 us after which a small
  /// collective goes from whoever shall wait for it to the progress thread.
  void operator()() {
    const std::uint64_t drawn = random_() % 64;
    if (drawn < 24) std::this_thread::yield();
    if (drawn < 8) sleep_up_to(std::chrono::microseconds(250));
    if (drawn == 63 && random_() % 8 == 0) sleep_up_to(std::chrono::milliseconds(4));
  }
  /// One between two steps: some ranks are late in all of theirs.
  void before_step() {
    (*this)();
    if (is_late_) sleep_up_to(std::chrono::milliseconds(2));
  }

 private:
  void sleep_up_to(std::chrono::microseconds longest) {
    std::this_thread::sleep_for(longest * static_cast<int>(random_() % 64) / 64);
  }

  std::mt19937_64 random_;
  bool is_late_ = false;
};

/// A group whose rank pauses before and behind each launch, and before each wait.
class PausingBackend final : public comm::CommunicatorBackend {
 public:
  /// Over a backend that lives longer.
  PausingBackend(CommunicatorBackend& backend, std::shared_ptr<Pauses> pauses)
      : CommunicatorBackend(backend.rank(), backend.size(), backend.name(), backend.options()),
        backend_(backend),
        pauses_(std::move(pauses)) {}

  Device device() const override { return backend_.device(); }
  std::string_view kind() const override { return backend_.kind(); }
  comm::Work submit(std::span<comm::Operation> operations) override {
    (*pauses_)();
    const comm::Work work = backend_.submit(operations);
    (*pauses_)();
    return comm::Work(make_intrusive<State>(work, pauses_));
  }
  std::unique_ptr<CommunicatorBackend> split(const comm::SplitPlan& plan) override {
    (*pauses_)();
    return backend_.split(plan);
  }
  IntrusivePtr<comm::Memory> allocate(std::size_t bytes) override {
    return backend_.allocate(bytes);
  }
  void declare(std::uint64_t subject, const std::string& end) override {
    backend_.declare(subject, end);
  }
  void check() override { backend_.check(); }
  void abort(const std::string& reason) noexcept override { backend_.abort(reason); }
  std::string describe_progress() const override { return backend_.describe_progress(); }

 private:
  class State final : public comm::WorkState {
   public:
    State(comm::Work work, std::shared_ptr<Pauses> pauses)
        : work_(std::move(work)), pauses_(std::move(pauses)) {}
    void wait() override {
      (*pauses_)();
      work_.wait();
    }
    void synchronize() override {
      (*pauses_)();
      work_.synchronize();
    }
    bool is_completed() const override { return work_.is_completed(); }
    std::exception_ptr exception() const override { return work_.exception(); }
    std::optional<comm::WorkTimes> times() const override { return work_.times(); }
    std::optional<comm::WorkTimes::Clock::duration> duration() const override {
      return work_.duration();
    }
    void release_memory() noexcept override { work_.release_memory(); }

   private:
    comm::Work work_;
    std::shared_ptr<Pauses> pauses_;
  };

  CommunicatorBackend& backend_;
  std::shared_ptr<Pauses> pauses_;
};

/// Runs `body` on ranks that pause. Ends the process, with what each rank was at, where they hang.
/// @return the failure of each rank's body, or of the job; empty for none.
inline std::vector<std::string> run_pausing(
    int ranks, std::uint64_t seed,
    const std::function<void(Communicator& group, Pauses& pauses)>& body) {
  std::vector<std::string> failures(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  std::vector<Communicator*> groups;
  const HangWatchdog watchdog(std::chrono::seconds(120), [&] {
    const std::lock_guard lock(mutex);
    std::string text = "seed " + std::to_string(seed);
    for (const Communicator* group : groups) text += "\n" + group->describe_progress();
    return text;
  });
  const auto play = [&](Communicator& world) {
    const auto pauses = std::make_shared<Pauses>(seed, world.rank());
    const auto group = make_intrusive<Communicator>(
        std::make_unique<PausingBackend>(world.implementation(), pauses));
    {
      const std::lock_guard lock(mutex);
      groups.push_back(&world);
    }
    std::exception_ptr failure;
    try {
      body(*group, *pauses);
    } catch (...) {
      failures[static_cast<std::size_t>(world.rank())] = comm::Failure::from_current().message();
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    std::erase(groups, &world);
    if (failure) std::rethrow_exception(failure);  // as a program would end
  };
  try {
    comm::run_ranks(ranks, play, {.timeout = std::chrono::seconds(60) * timeout_multiplier});
  } catch (const std::exception& error) {
    for (std::string& each : failures)  // what is found when all have ended
      if (each.empty()) each = error.what();
  }
  return failures;
}

}  // namespace lockstep::testing
