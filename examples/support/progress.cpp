#include "support/progress.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <unistd.h>

namespace examples {
namespace {

/// True if a person watches the output. mpirun gives its processes a terminal of their own even
/// where its output goes to a file or a pipe, so there its own output decides.
bool watched() {
  if (isatty(STDOUT_FILENO) != 1) return false;
  if (!std::getenv("OMPI_COMM_WORLD_SIZE") && !std::getenv("PMI_SIZE")) return true;
  std::error_code unreadable;
  const auto target =
      std::filesystem::read_symlink("/proc/" + std::to_string(getppid()) + "/fd/1", unreadable);
  return !unreadable && target.string().starts_with("/dev/pts/");
}

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
    : steps_(steps), silent_(silent), terminal_(watched()) {}

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
