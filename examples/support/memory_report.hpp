#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <CLI/CLI.hpp>
#include <lockstep/lockstep.hpp>

/// @file
/// The options of training programs that choose the memory pool and look into it.

namespace examples {

/// --pool and --memory-snapshot.
struct MemoryOptions {
  std::string pool;
  std::filesystem::path snapshot;
};

/// Adds both options. The pool is chosen as soon as the command line is parsed.
void add_memory_options(CLI::App& app, MemoryOptions& options);

/// Records the memory of one step, the third (or the last of fewer), in which all that a step keeps
/// is there.
class MemoryReport {
 public:
  /// @param options where to; nothing is recorded for an empty path, or on ranks but the main one.
  MemoryReport(const MemoryOptions& options, const lockstep::Session& session, std::int64_t steps);

  /// To be called before each step, with its number from 0.
  void before_step(std::int64_t step);
  /// To be called after each step. @throws lockstep::Error where the file cannot be written.
  void after_step(std::int64_t step);

 private:
  std::filesystem::path file_;
  lockstep::Device device_;
  std::int64_t recorded_;
};

}  // namespace examples
