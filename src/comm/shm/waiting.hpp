#pragma once

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include "comm/host/deadline.hpp"
#include "comm/host/executor.hpp"
#include "comm/shm/window.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/core/function_ref.hpp"

namespace lockstep::comm::shm {

/// Counts a signal up and wakes who sleeps on it.
void raise(Signal& signal) noexcept;
/// Wakes who sleeps on a signal, whatever it says.
void wake(Signal& signal) noexcept;

/// How a rank waits for others: it looks for a moment, for as long as a small collective takes, and
/// then sleeps. In its sleep it hears of an abort, a deadline, and of ranks that are gone.
class Waiting {
 public:
  using Missing = FunctionRef<std::vector<int>()>;

  /// @param window which all ranks have entered; outlives it.
  explicit Waiting(const Window& window) : window_(window), is_crowded_(window.is_crowded()) {}
  /// Of all that is waited for from here on. @param deadline outlives it.
  void set_deadline(const host::Deadline& deadline) { deadline_ = &deadline; }

  /// @throws PeerFailure after an abort
  void check_aborted() const {
    if (const char* reason = window_.abort_reason()) throw PeerFailure(reason);
  }
  /// Returns once `done`, which a change of the signal may bring about.
  /// @param missing tells which ranks are waited for.
  /// @throws TransferTimeout, PeerGone, PeerFailure after an abort
  template <class Done>
  void until(Signal& signal, Done done, Missing missing) const {
    if (done() || look(done)) return;
    while (true) {
      const std::uint32_t seen = signal.value.load();
      if (done()) return;
      check(done, missing);
      sleep(signal, seen);
    }
  }

 private:
  template <class Done>
  bool look(Done& done) const {
    using namespace std::chrono_literals;
    if (look_briefly(done)) return true;
    const auto end = host::Clock::now() + (is_crowded_ ? 0us : 8us);
    while (host::Clock::now() < end)
      if (look_briefly(done)) return true;
    for (int i = 0; i < 20; ++i) {
      yield();
      if (done()) return true;
    }
    return false;
  }
  template <class Done>
  bool look_briefly(Done& done) const {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      pause();
    }
    return false;
  }
  template <class Done>
  void check(Done& done, Missing missing) const {
    const std::vector<int> ranks = missing();
    check_window(ranks);
    for (const int rank : ranks) {
      if (window_.is_there(rank)) continue;
      // It may have left with all done that this rank waited for, while others are still missing.
      if (done()) return;
      if (std::ranges::count(missing(), rank) > 0) throw_gone(rank);
    }
  }

  static void pause() noexcept;
  static void yield() noexcept;
  void check_window(std::span<const int> ranks) const;
  [[noreturn]] void throw_gone(int rank) const;
  void sleep(Signal& signal, std::uint32_t seen) const noexcept;

  const Window& window_;
  const bool is_crowded_;
  const host::Deadline* deadline_ = nullptr;
};

}  // namespace lockstep::comm::shm
