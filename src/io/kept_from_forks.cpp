#include "io/kept_from_forks.hpp"

#include <array>
#include <atomic>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

namespace lockstep::io {
namespace {

constexpr int none = 0, taken = -1;

// Read in children, where another thread may have been amid anything: no locks, no memory.
std::array<std::atomic<int>, 64>& kept() {
  static std::array<std::atomic<int>, 64> descriptors;  // 1 more than they are: 0 is none
  return descriptors;
}

void let_go() {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return;
  for (const auto& each : kept())
    if (each > 0) ::dup3(nothing, each - 1, O_CLOEXEC);
  ::close(nothing);
}

}  // namespace

KeptFromForks::~KeptFromForks() {
  if (place_ >= 0) kept()[static_cast<std::size_t>(place_)] = none;
}

void KeptFromForks::keep(int descriptor) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, let_go);
  static_cast<void>(registered);
  for (std::size_t i = 0; i < kept().size() && place_ < 0; ++i)
    if (int expected = none; kept()[i].compare_exchange_strong(expected, taken))
      place_ = static_cast<int>(i);
  if (place_ >= 0) kept()[static_cast<std::size_t>(place_)] = descriptor + 1;
}

}  // namespace lockstep::io
