#include "lockstep/observe/log.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>

#include <poll.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::string_view level_names[] = {"debug", "info", "warning", "error", "off"};

using Sink = std::function<void(std::string_view)>;

struct Target {
  std::mutex mutex;
  std::string prefix;
  std::shared_ptr<const Sink> sink;
};

/// Whether this thread runs the sink, and so has the lock of the target.
thread_local bool is_in_sink = false;

std::unique_lock<std::mutex> lock_of(Target& to) {
  return is_in_sink ? std::unique_lock(to.mutex, std::defer_lock) : std::unique_lock(to.mutex);
}

// Never destroyed: threads may log while the process ends.
Target& target() {
  static Target& instance = *new Target;
  return instance;
}

/// Whether a full pipe that does not block is read within a second; of one that was not, no more is
/// waited for until something can be written.
bool has_room_soon(bool& is_stuck) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(is_stuck ? 0 : 1);
  pollfd pipe{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  int ready = -1;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    ready = ::poll(&pipe, 1, static_cast<int>(std::max<std::int64_t>(0, left)));
  } while (ready < 0 && errno == EINTR);
  is_stuck = ready <= 0;
  return !is_stuck && (pipe.revents & POLLOUT) != 0;
}

void write_all(std::string_view text) {
  static bool is_stuck = false;  // the lock of the target is held
  const int errno_before = errno;
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN && has_room_soon(is_stuck)) continue;
    if (written <= 0) break;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  errno = errno_before;
}

/// The level that the environment gives. What is no level is told: the default would be taken for
/// it.
LogLevel initial_level() {
  const char* const text = std::getenv("LOCKSTEP_LOG_LEVEL");
  if (!text || !*text) return LogLevel::warning;
  const auto* found = std::ranges::find(level_names, std::string_view(text));
  if (found != std::end(level_names)) return static_cast<LogLevel>(found - std::begin(level_names));
  const std::lock_guard lock(target().mutex);
  write_all(std::string("warning: LOCKSTEP_LOG_LEVEL is \"") + text +
            "\": warning is taken; give debug, info, warning, error or off\n");
  return LogLevel::warning;
}

std::atomic<LogLevel>& current_level() {
  static std::atomic<LogLevel> level{initial_level()};
  return level;
}

}  // namespace

LogLevel log_level() { return current_level().load(std::memory_order_relaxed); }

void set_log_level(LogLevel level) { current_level().store(level, std::memory_order_relaxed); }

void set_log_rank(int rank, int size) {
  const auto lock = lock_of(target());
  target().prefix = size > 1 ? "[rank " + std::to_string(rank) + "] " : "";
}

void set_log_sink(std::function<void(std::string_view)> sink) {
  auto other = sink ? std::make_shared<const Sink>(std::move(sink)) : nullptr;
  const auto lock = lock_of(target());
  target().sink.swap(other);  // the former one goes behind the lock: it may log, too
}

void write_log(LogLevel level, std::string_view message) {
  Target& to = target();
  std::shared_ptr<const Sink> sink;  // goes behind the lock
  const auto lock = lock_of(to);
  const std::string_view name = level_names[static_cast<std::size_t>(level)];
  std::string line;
  try {
    line = to.prefix;
    line += name;
    line += ": ";
    line += message;
    line += '\n';
  } catch (const std::bad_alloc&) {  // to standard error, in pieces
    for (const std::string_view piece : {std::string_view(to.prefix), name, std::string_view(": "),
                                         message, std::string_view("\n")})
      write_all(piece);
    return;
  }
  // What a sink logs itself would wait for it for ever, and goes past it.
  if (!to.sink || is_in_sink) return write_all(line);
  sink = to.sink;  // it may set another one
  is_in_sink = true;
  const std::unique_ptr<bool, void (*)(bool*)> leaving(&is_in_sink,
                                                       [](bool* inside) { *inside = false; });
  (*sink)(line);
}

}  // namespace lockstep
