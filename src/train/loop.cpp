#include "lockstep/train/loop.hpp"

#include <chrono>
#include <utility>

#include "comm/run_progress.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/stop_request.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/observe/log.hpp"
#include "train/late_report.hpp"
#include "train/loop_checks.hpp"
#include "train/loop_progress.hpp"

namespace lockstep::train {

struct Loop::State {
  State(Session* session, CommunicatorPtr ranks, const LoopOptions& given)
      : group(std::move(ranks)), options(given), early_stopping(given.early_stopping) {
    check(*group, options);
    if (options.checkpoint_dir.empty()) return;
    if (session) stop.emplace(*session);
    checkpoints.emplace(options.checkpoint_dir, group, options.checkpoints);
  }

  CommunicatorPtr group;
  LoopOptions options;
  LoopProgress progress;
  EarlyStopping early_stopping;
  std::optional<StopRequest> stop;  // none without checkpoints
  std::optional<checkpoint::Manager> checkpoints;
  LateReport report;
  bool is_stopped = false;
  std::int64_t saved = -1;  // the last step that was

  void resume(const Loop& loop, std::int64_t epoch_steps);
  void evaluate_and_save(const Loop& loop);
  bool evaluate(const Loop& loop);
  void save(std::optional<double> metric = std::nullopt);
};

void Loop::State::resume(const Loop& loop, std::int64_t epoch_steps) {
  progress.set_length(options, epoch_steps);
  if (!checkpoints) return;
  if (!checkpoints->has_tensors() && group->rank() == 0)
    LOCKSTEP_LOG(warning, "the checkpoints of ", options.checkpoint_dir.string(),
                 " keep no weights: nothing in tensors was added to the loop; call loop.add(step), "
                 "or loop.add(\"model\", ddp) and so on, before run()");
  checkpoints->add("random", default_generator());
  checkpoints->add("early_stopping", early_stopping);
  checkpoints->add("loop", progress);
  std::optional<std::int64_t> loaded;
  if (!options.resume_from.empty())
    loaded = checkpoints->load(options.resume_from);
  else if (options.resume)
    loaded = checkpoints->load_newest();
  if (!loaded) return;
  progress.step = saved = *loaded;
  progress.set_length(options, epoch_steps);
  if (options.checkpoints.keep_best) checkpoints->keep(early_stopping.state().best_step);
  if (loop.on_resume) loop.on_resume(*loaded);
}

/// What is due after a step.
void Loop::State::evaluate_and_save(const Loop& loop) {
  const bool is_best = progress.is_due && evaluate(loop);
  if (!checkpoints) return;
  if (is_best && options.checkpoints.keep_best) {
    checkpoints->keep(progress.step);
    save(progress.evaluation->metric);
  } else if (checkpoints->save_if_due(progress.step)) {
    saved = progress.step;
  }
}

/// @return whether it was never better.
bool Loop::State::evaluate(const Loop& loop) {
  progress.is_due = false;
  saved = -1;  // a checkpoint of this step does not know of it
  report.flush(loop.on_step);
  const PhiloxState place = default_generator().state();
  const double own = [&] {
    const NoGradGuard no_recording;
    const comm::LongWork evaluation;
    return loop.evaluate();
  }();
  default_generator().set_state(place);
  const double metric = comm::broadcast_scalar(*group, own, 0, "metric of an evaluation");
  const Evaluation made{.step = progress.step,
                        .metric = metric,
                        .is_best = early_stopping.update(progress.step, metric),
                        .ends_epoch = progress.ends_epoch};
  progress.evaluation = made;
  if (loop.on_evaluation) loop.on_evaluation(made);
  report.restart();
  return made.is_best;
}

void Loop::State::save(std::optional<double> metric) {
  checkpoints->save(progress.step, metric);
  saved = progress.step;
}

Loop::Loop(Session& session, const LoopOptions& options)
    : state_(std::make_unique<State>(&session, session.host_world(), options)) {}

Loop::Loop(const CommunicatorPtr& group, const LoopOptions& options)
    : state_(std::make_unique<State>(nullptr, group, options)) {}

Loop::~Loop() = default;

comm::Communicator& Loop::group() noexcept { return *state_->group; }

checkpoint::Manager* Loop::checkpoints() noexcept {
  return state_->checkpoints ? &*state_->checkpoints : nullptr;
}

void Loop::start(std::optional<std::int64_t> epoch_steps) {
  State& state = *state_;
  check_run(*state.group, state.options, evaluate != nullptr, epoch_steps);
  state.resume(*this, epoch_steps.value_or(0));
  if (evaluate && state.progress.is_due) state.evaluate_and_save(*this);
  state.report.restart();
}

bool Loop::goes_on() const noexcept {
  return state_->progress.goes_on(state_->options) && !state_->is_stopped &&
         !state_->early_stopping.should_stop();
}

void Loop::end_step(const StepResult& result, bool ends_epoch) {
  State& state = *state_;
  state.progress.add_step(state.options, ends_epoch, evaluate != nullptr);
  if (on_step && result.loss.defined()) state.report.add(steps(), result, on_step);
  state.is_stopped = state.stop && state.stop->after(steps());
  if (!state.is_stopped) state.evaluate_and_save(*this);
}

int Loop::finish() {
  State& state = *state_;
  comm::note_end_of_steps();
  state.report.flush(on_step);
  if (state.checkpoints) {
    const bool is_whole = state.checkpoints->wait();  // which takes of the time that is left
    const bool is_saved = is_whole && state.saved == steps();
    const std::chrono::duration<double> save_time = state.checkpoints->save_time();
    if (!is_saved && (!state.is_stopped ||
                      has_time(*state.group, *state.stop, save_time, state.options.checkpoint_dir)))
      state.save();
    if (!state.checkpoints->wait()) return not_saved;
  }
  return state.is_stopped ? StopRequest::exit_code : 0;
}

std::int64_t Loop::steps() const noexcept { return state_->progress.step; }
std::int64_t Loop::all_steps() const noexcept { return state_->progress.length; }
const std::optional<Evaluation>& Loop::last_evaluation() const noexcept {
  return state_->progress.evaluation;
}
const EarlyStopping& Loop::early_stopping() const noexcept { return state_->early_stopping; }

}  // namespace lockstep::train
