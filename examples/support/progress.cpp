#include "support/progress.hpp"

#include <cstdio>

#include <unistd.h>

namespace examples {
namespace {

std::string time_left(double seconds) {
  char text[32];
  const auto whole = static_cast<long>(seconds + 0.5);
  if (whole >= 3600)
    std::snprintf(text, sizeof text, "%ld h %02ld min", whole / 3600, whole / 60 % 60);
  else
    std::snprintf(text, sizeof text, "%ld:%02ld", whole / 60, whole % 60);
  return text;
}

}  // namespace

Progress::Progress(std::int64_t steps, bool silent)
    : steps_(steps), silent_(silent), terminal_(isatty(STDOUT_FILENO) == 1) {}

bool Progress::due(std::int64_t step) const {
  if (step == 1 || step == steps_) return true;
  const double seconds = std::chrono::duration<double>(Clock::now() - shown_).count();
  return seconds >= (terminal_ ? 0.1 : 5.0);
}

void Progress::show(std::int64_t step, double loss, double rate, const std::string& unit) {
  if (silent_ || !due(step)) return;
  shown_ = Clock::now();
  const double elapsed = std::chrono::duration<double>(shown_ - start_).count();
  const double left = elapsed / static_cast<double>(step) * static_cast<double>(steps_ - step);
  std::printf("%sstep %*lld/%lld  loss %.4f  %.0f %s/s  %s left%s", terminal_ ? "\r\033[K" : "",
              static_cast<int>(std::to_string(steps_).size()), static_cast<long long>(step),
              static_cast<long long>(steps_), loss, rate, unit.c_str(), time_left(left).c_str(),
              terminal_ ? "" : "\n");
  std::fflush(stdout);
}

void Progress::finish() {
  if (!silent_ && terminal_) std::printf("\n");
}

}  // namespace examples
