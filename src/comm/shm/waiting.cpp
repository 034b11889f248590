#include "comm/shm/waiting.hpp"

#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::comm::shm {
namespace {

// So long a sleeper does not look at deadlines and at what has become of the others.
constexpr timespec longest_sleep{.tv_sec = 0, .tv_nsec = 20'000'000};

// Not a private futex: the others are other processes.
long futex(std::atomic<std::uint32_t>& word, int call, std::uint32_t value,
           const timespec* timeout) noexcept {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), call, value, timeout, nullptr,
                 0);
}

}  // namespace

void raise(Signal& signal) noexcept {
  signal.value.fetch_add(1);
  if (signal.sleepers.load() != 0) wake(signal);
}

void wake(Signal& signal) noexcept { futex(signal.value, FUTEX_WAKE, INT_MAX, nullptr); }

void Waiting::pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void Waiting::yield() noexcept { sched_yield(); }

// Who raises the signal after `seen` was read either finds the sleeper counted, or makes the call
// return at once.
void Waiting::sleep(Signal& signal, std::uint32_t seen) const noexcept {
  signal.sleepers.fetch_add(1);
  futex(signal.value, FUTEX_WAIT, seen, &longest_sleep);
  signal.sleepers.fetch_sub(1);
}

void Waiting::check_window(std::span<const int> ranks) const {
  check_aborted();
  if (deadline_->may_be_over() && deadline_->is_over(ranks))
    throw host::TransferTimeout{{ranks.begin(), ranks.end()}};
}

// What it had to say before it went, such as why, may be there by now.
void Waiting::throw_gone(int rank) const {
  check_aborted();
  throw host::PeerGone{rank};
}

}  // namespace lockstep::comm::shm
