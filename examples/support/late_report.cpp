#include "support/late_report.hpp"

namespace examples {

void LateReport::add(QueuedStep step) {
  // On the CPU it has ended by now, and must not be timed by the one after it.
  std::optional<Clock::time_point> ended;
  if (step.loss.is_ready()) ended = Clock::now();
  flush();
  untold_.push_back({std::move(step), ended});
}

void LateReport::flush() {
  for (const Untold& last : untold_) {
    last.step.loss.wait();
    const Clock::time_point ended = last.ended.value_or(Clock::now());
    tell_(last.step, std::chrono::duration<double>(ended - former_ended_).count());
    former_ended_ = ended;
  }
  untold_.clear();
}

void LateReport::restart() {
  flush();
  former_ended_ = Clock::now();
}

}  // namespace examples
