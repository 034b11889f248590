#include "support/training_report.hpp"

#include <cmath>
#include <iostream>
#include <utility>

namespace examples {

namespace train = lockstep::train;

TrainingReport::TrainingReport(train::Loop& loop, const lockstep::Session& session,
                               ReportOptions options)
    : loop_(loop), options_(std::move(options)), is_main_(session.is_main()) {
  loop.on_step = [this](const train::StepReport& step) { tell(step); };
  loop.on_evaluation = [this](const train::Evaluation& evaluation) { tell(evaluation); };
  loop.on_resume = [this](std::int64_t steps) {
    if (is_main_) std::cout << "goes on after step " << steps << std::endl;
  };
}

void TrainingReport::tell(const train::StepReport& step) {
  LOCKSTEP_CHECK(std::isfinite(step.loss) || options_.skips_overflows, lockstep::Error,
                 "the loss became ", step.loss, " at step ", step.step,
                 "; lower --lr, or raise --warmup where there is one");
  if (!is_main_) return;
  if (!progress_) {
    progress_.emplace(loop_.all_steps(), false);
    if (!options_.log.empty()) log_ = StepLog(options_.log, step.step > 1);
  }
  const double rate = static_cast<double>(options_.units_a_step) / step.seconds;
  StepLog::Fields fields{{"step", static_cast<double>(step.step - 1)},
                         {"loss", step.loss},
                         {"lr", step.lr},
                         {options_.unit + "_per_s", rate},
                         {"ms", step.seconds * 1e3}};
  if (step.grad_norm) fields.insert(fields.begin() + 2, {"grad_norm", *step.grad_norm});
  if (loop_.checkpoints())
    fields.emplace_back("failed_saves", static_cast<double>(loop_.checkpoints()->failed_saves()));
  log_.write(fields);
  progress_->show(step.step, step.loss, rate, options_.unit);
}

void TrainingReport::tell(const train::Evaluation& evaluation) {
  ++evaluations_;
  if (!is_main_) return;
  if (progress_) progress_->finish();
  if (evaluation.ends_epoch && options_.epoch_steps > 0)
    std::cout << "epoch " << evaluation.step / options_.epoch_steps << ": ";
  else if (evaluation.step < loop_.all_steps())
    std::cout << "step " << evaluation.step << ": ";
  std::cout << options_.describe(evaluation.metric) << std::endl;
}

void TrainingReport::finish(const train::Step& step) {
  if (!is_main_) return;
  if (progress_) progress_->finish();
  if (!step.fallback_reason().empty())
    std::cout << "steps ran eagerly: " << step.fallback_reason() << std::endl;
  const train::EarlyStopping& stopping = loop_.early_stopping();
  const auto& [best, best_step, bad, reference] = stopping.state();
  if (stopping.should_stop())
    std::cout << "no better in " << bad << " evaluations: stopped after step " << loop_.steps()
              << std::endl;
  const std::int64_t failed = loop_.checkpoints() ? loop_.checkpoints()->failed_saves() : 0;
  if (failed > 0) std::cout << "checkpoints that were not saved: " << failed << std::endl;
  if (evaluations_ > 1 && best_step >= 0)
    std::cout << "best after step " << best_step << ": " << options_.describe(best) << std::endl;
}

int leave_together(lockstep::Session& session, int code) {
  if (code != 0) session.host_world()->barrier().synchronize();
  return code;
}

}  // namespace examples
