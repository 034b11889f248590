#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <lockstep/lockstep.hpp>

/// @file
/// The options of training programs that choose the memory pool, plan for it and look into it.

namespace examples {

/// --pool, --plan-memory and --memory-snapshot.
struct MemoryOptions {
  std::string pool;
  bool plan = false;
  std::filesystem::path snapshot;
};

/// Adds the options. The pool is chosen as soon as the command line is parsed.
void add_memory_options(CLI::App& app, MemoryOptions& options);

/// Plans the memory of steps, where that is asked for, and records that of one, the third (or the
/// last of fewer), in which all that a step keeps is there.
class StepMemory {
 public:
  /// @param options nothing is recorded for an empty path, or on ranks but the main one.
  /// @param loop whose steps they are.
  StepMemory(const MemoryOptions& options, const lockstep::Session& session,
             const lockstep::train::Loop& loop);

  /// Makes a step. @throws lockstep::Error where the file cannot be written.
  auto operator()(auto&& step) {
    begin();
    auto result = step();
    end();
    return result;
  }

 private:
  void begin();
  void end();

  const lockstep::train::Loop& loop_;
  std::filesystem::path file_;
  lockstep::Device device_;
  std::int64_t recorded_ = -1;  // none before the first step
  std::unique_ptr<lockstep::MemoryPlanner> planner_;
  std::unique_ptr<lockstep::MemoryPlanner::Step> planned_;
};

}  // namespace examples
