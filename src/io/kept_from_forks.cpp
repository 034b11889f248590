#include "io/kept_from_forks.hpp"

#include <array>
#include <atomic>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

namespace lockstep::io {
namespace {

constexpr int none = 0;

// Read in children, where another thread may have been amid anything: no locks, no memory. Each is
// 1 more than a descriptor: 0 is none.
std::array<std::atomic<int>, 64> kept;
std::atomic<int> nothing = -1;  // what children get: a process may have no descriptor left

void let_go() {
  for (auto& each : kept)
    if (const int descriptor = each.exchange(none) - 1; descriptor >= 0)
      ::dup3(nothing, descriptor, O_CLOEXEC);  // of a child's children it may be anything
}

/// Once for the process.
bool prepare() {
  nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  return nothing >= 0 && ::pthread_atfork(nullptr, nullptr, let_go) == 0;
}

}  // namespace

KeptFromForks::~KeptFromForks() {
  if (place_ < 0) return;
  int own = descriptor_ + 1;  // in a child the place may be another's
  kept[static_cast<std::size_t>(place_)].compare_exchange_strong(own, none);
}

void KeptFromForks::keep(int descriptor) {
  static const bool is_prepared = prepare();
  descriptor_ = descriptor;
  for (std::size_t i = 0; is_prepared && i < kept.size() && place_ < 0; ++i)
    if (int expected = none; kept[i].compare_exchange_strong(expected, descriptor + 1))
      place_ = static_cast<int>(i);
}

}  // namespace lockstep::io
