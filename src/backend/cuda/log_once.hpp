#pragma once

#include <mutex>
#include <set>
#include <string>

#include "lockstep/observe/log.hpp"

namespace lockstep::backend {

/// Tells of what a library lacks, once in a process: each thread asks for the same plans.
template <class... Parts>
void log_once(LogLevel level, const Parts&... parts) {
  if (level < log_level()) return;
  static std::mutex mutex;
  static auto& known = *new std::set<std::string>;
  const std::string message = lockstep::detail::concat(parts...);
  const std::lock_guard lock(mutex);
  if (known.insert(message).second) write_log(level, message);
}

}  // namespace lockstep::backend
