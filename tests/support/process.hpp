#pragma once

#include <array>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>

#include <sys/wait.h>

#include "support/timeout_multiplier.hpp"

namespace lockstep::testing {

/// How a command ended, and what it wrote to both streams.
struct CommandResult {
  int exit_code = 0;
  std::chrono::steady_clock::time_point end;
  double seconds = 0;
  std::string output;
};

/// Runs a shell command to its end; it is killed, with all it started, after `limit` seconds, times
/// the build's timeout multiplier (exit code 137). A launcher that hangs may outlive milder
/// signals.
inline CommandResult run_command(const std::string& command, int limit = 60) {
  const std::string limited = "timeout -s KILL " + std::to_string(limit * timeout_multiplier) +
                              " sh -c '" + command + "' 2>&1";
  const auto start = std::chrono::steady_clock::now();
  FILE* pipe = popen(limited.c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot run " + command);
  CommandResult result;
  std::array<char, 4096> chunk;
  while (const std::size_t count = std::fread(chunk.data(), 1, chunk.size(), pipe))
    result.output.append(chunk.data(), count);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.end = std::chrono::steady_clock::now();
  result.seconds = std::chrono::duration<double>(result.end - start).count();
  return result;
}

/// How often `part` stands in an output.
inline std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace lockstep::testing
