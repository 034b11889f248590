#include "support/step_memory.hpp"

#include <algorithm>
#include <iostream>

#include "support/command_line.hpp"

namespace ls = lockstep;

namespace examples {

void add_memory_options(CLI::App& app, MemoryOptions& options) {
  app.add_option("--pool", options.pool,
                 "What serves memory: caching, growable, async (cudaMallocAsync) or none; default: "
                 "LOCKSTEP_POOL, or caching")
      ->check(CLI::IsMember({"caching", "growable", "async", "none"}))
      ->each([](const std::string& name) { ls::set_pool(name); });
  app.add_flag("--plan-memory", options.plan,
               "Work out after the second step where those behind it put their tensors");
  app.add_option("--memory-snapshot", options.snapshot,
                 "Write rank 0's memory during the third step here, for scripts/memory_plot.py")
      ->check(writable_file());
}

StepMemory::StepMemory(const MemoryOptions& options, const ls::Session& session,
                       const ls::train::Loop& loop)
    : loop_(loop), device_(session.device()) {
  if (session.is_main()) file_ = options.snapshot;
  if (options.plan) planner_ = std::make_unique<ls::MemoryPlanner>(device_);
}

void StepMemory::begin() {
  if (planner_) planned_.reset(new ls::MemoryPlanner::Step(planner_->step()));
  if (recorded_ < 0) recorded_ = std::min(loop_.steps() + 2, loop_.all_steps() - 1);
  if (file_.empty() || loop_.steps() != recorded_) return;
  ls::reset_peak_memory_stats(device_);
  ls::record_memory_history(device_);
}

void StepMemory::end() {
  planned_.reset();
  if (file_.empty() || loop_.steps() != recorded_) return;
  if (file_.has_parent_path()) std::filesystem::create_directories(file_.parent_path());
  ls::dump_memory_snapshot(device_, file_);
  ls::record_memory_history(device_, std::nullopt);
}

}  // namespace examples
