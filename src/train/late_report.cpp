#include "train/late_report.hpp"

namespace lockstep::train {

void LateReport::add(std::int64_t step, const StepResult& result, const Tell& tell) {
  Untold next{.step = step, .lr = result.lr, .loss = HostCopy(result.loss)};
  if (result.grad_norm.defined()) next.grad_norm.emplace(result.grad_norm);
  // On the CPU it has ended by now, and must not be timed by the one after it.
  if (next.loss.is_ready()) next.end = Clock::now();
  flush(tell);
  untold_ = std::move(next);
}

void LateReport::flush(const Tell& tell) {
  if (!untold_) return;
  const Untold last = *std::exchange(untold_, std::nullopt);
  StepReport report{.step = last.step, .loss = last.loss.item(), .lr = last.lr};
  const Clock::time_point end = last.end.value_or(Clock::now());
  if (last.grad_norm) report.grad_norm = last.grad_norm->item();
  report.seconds = std::chrono::duration<double>(end - former_end_).count();
  former_end_ = end;
  tell(report);
}

}  // namespace lockstep::train
