#pragma once

#include <functional>
#include <new>
#include <string_view>

#include "lockstep/core/error.hpp"

/// @file
/// Messages for people: one line each, to standard error, with the rank in front.

namespace lockstep {

/// How much a message matters.
enum class LogLevel : unsigned char { debug, info, warning, error, off };

/// Messages below this level are dropped. Initially LOCKSTEP_LOG_LEVEL (debug, info, warning,
/// error, off), or warning.
LogLevel log_level();
/// Sets the level for the whole process.
void set_log_level(LogLevel level);

/// Names this process in front of every line: "[rank 2] ". A job of one rank has no prefix.
void set_log_rank(int rank, int size);

/// Replaces standard error as the target of whole lines, for tests; null restores it. A sink runs
/// on the thread that logs, one line at a time: it may log, which goes to standard error, and set
/// another sink, but must not wait for a thread that logs. The former sink is not called any more
/// when this returns.
void set_log_sink(std::function<void(std::string_view line)> sink);

/// Writes one line at once, whatever the level: lines of several ranks or threads do not mix.
/// LOCKSTEP_LOG is the usual way in.
void write_log(LogLevel level, std::string_view message);

namespace detail {
/// What is told where memory has run out must not end the program.
inline constexpr std::string_view unsaid = "there is no memory for this message";
}  // namespace detail

}  // namespace lockstep

/// Logs the streamed parts; they are evaluated only if the level is shown.
/// Usage: LOCKSTEP_LOG(info, "loaded ", count, " samples").
#define LOCKSTEP_LOG(level, ...)                                                        \
  do {                                                                                  \
    if (::lockstep::LogLevel::level >= ::lockstep::log_level()) {                       \
      try {                                                                             \
        ::lockstep::write_log(::lockstep::LogLevel::level,                              \
                              ::lockstep::detail::concat(__VA_ARGS__));                 \
      } catch (const std::bad_alloc&) {                                                 \
        ::lockstep::write_log(::lockstep::LogLevel::level, ::lockstep::detail::unsaid); \
      }                                                                                 \
    }                                                                                   \
  } while (false)
