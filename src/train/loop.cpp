#include "lockstep/train/loop.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "comm/run_progress.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/stop_request.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/observe/log.hpp"
#include "train/finite_losses.hpp"
#include "train/late_report.hpp"
#include "train/loop_checks.hpp"
#include "train/loop_progress.hpp"

namespace lockstep::train {

struct Loop::State {
  State(Session* session, CommunicatorPtr ranks, const LoopOptions& given)
      : group(std::move(ranks)), options(given), early_stopping(given.early_stopping) {
    LOCKSTEP_CHECK(group, InvalidArgument,
                   "train::Loop: no group of ranks; give the session, or session.host_world()");
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
  FiniteLosses losses;
  bool are_losses_alike = false;  // on all ranks
  bool is_stopped = false, is_not_finite = false, has_warned_of_metric = false;
  bool is_resumed = false;  // a run of it has begun
  std::int64_t saved = -1;  // the last step that was

  void resume(const Loop& loop, std::int64_t epoch_steps);
  std::optional<std::int64_t> load();
  void evaluate_and_save(const Loop& loop);
  bool evaluate(const Loop& loop);
  void save(std::optional<double> metric = std::nullopt);
  LateReport::Tell tell(const Loop& loop);
  void add_report(const Loop& loop, const StepResult& result);
  bool warns_of_losses() const {
    return !options.terminate_on_nan && (group->rank() == 0 || !are_losses_alike);
  }
  bool takes_snapshot() const {
    const std::int64_t every = options.checkpoints.snapshot_every;
    return every > 0 && progress.step % every == 0;
  }
  bool finds_losses_finite();
  bool may_save(const Loop& loop);
};

/// What hears of a step.
LateReport::Tell Loop::State::tell(const Loop& loop) {
  return [this, &loop](const StepReport& step) {
    losses.add(step.step, step.loss, group->rank(), warns_of_losses());
    if (loop.on_step) loop.on_step(step);
  };
}

/// On the CPU a loss is there already.
void Loop::State::add_report(const Loop& loop, const StepResult& result) {
  const Tensor& loss = result.loss;
  if (!loss.defined()) return;
  if (loop.on_step || options.terminate_on_nan || (loss.device().is_cpu() && loss.numel() == 1))
    report.add(progress.step, result, tell(loop));
}

/// Whether no rank has had a loss that is not finite, where that ends the run.
bool Loop::State::finds_losses_finite() {
  if (!options.terminate_on_nan || is_not_finite) return !is_not_finite;
  const std::int64_t own = losses.count() > 0 ? group->size() - group->rank() : 0;
  const std::int64_t found =
      group->size() == 1
          ? own
          : comm::all_reduce_scalar(*group, own, comm::ReduceOp::max(), "losses not finite");
  if (found > 0 && group->rank() == 0)
    LOCKSTEP_LOG(warning, "the loss of step ", progress.step, ", or of the one before, is not ",
                 "finite on rank ", group->size() - found,
                 ": the run ends, unsaved, as terminate_on_nan says");
  is_not_finite = found > 0;
  return !is_not_finite;
}

/// Tells of the step that is to be kept: what `on_step` changes is kept with it, and a loss that is
/// not finite may keep it from being saved.
bool Loop::State::may_save(const Loop& loop) {
  if (!loop.on_step && !options.terminate_on_nan) return true;
  report.flush(tell(loop));
  return finds_losses_finite();
}

/// A step's, where other tensors were added in its place, or beside it; and what its wrapper keeps.
void Loop::warn_of_states_left_out(const Step& step) {
  if (!checkpoints() || group().rank() != 0) return;
  const nn::ReplicatedModule::Beside beside = step.keeps_beside();
  if (!beside.name.empty() && !checkpoints()->keeps(beside.object))
    LOCKSTEP_LOG(
        warning, "the checkpoints of ", state_->options.checkpoint_dir.string(),
        " keep nothing of ", beside.name,
        ", so that a run that is resumed has other bits; call loop.add(step), and "
        "loop.add(\"hook\", hook, ddp) or loop.add(\"averaging\", averaging), before run(), or of "
        "a hook of one's own its TensorState, whose object is the hook");
  for (const char* const name : {"model", "optimizer"})
    if (!checkpoints()->has(name))
      LOCKSTEP_LOG(warning, "the checkpoints of ", state_->options.checkpoint_dir.string(),
                   " keep no \"", name,
                   "\": of the step only what was added under other names; call loop.add(step) "
                   "before run(), or add it yourself");
  const std::string parameter = step.parameter_beside_module();
  const auto is_of_others = [](const std::string& name) {
    return name != "model" && name != "optimizer" && name != "average";
  };
  if (!parameter.empty() && std::ranges::none_of(checkpoints()->tensor_names(), is_of_others))
    LOCKSTEP_LOG(
        warning, "the checkpoints of ", state_->options.checkpoint_dir.string(),
        " keep what the optimizer has of parameter ", parameter,
        ", which is not of the step's module, but not its value: a run that is resumed has "
        "it as it was made; add what has it, too (loop.add(\"decoder\", its_ddp), or a "
        "tensor), before run()");
}

void Loop::State::resume(const Loop& loop, std::int64_t epoch_steps) {
  progress.set_length(options, epoch_steps);
  if (!checkpoints) return;
  loop.check_has_not_run();
  is_resumed = true;
  if (checkpoints->tensor_names().empty() && group->rank() == 0)
    LOCKSTEP_LOG(warning, "the checkpoints of ", options.checkpoint_dir.string(),
                 " keep no weights: nothing in tensors was added to the loop; call loop.add(step), "
                 "or loop.add(\"model\", ddp) and so on, before run()");
  checkpoints->add("random", default_generator());
  checkpoints->add("early_stopping", early_stopping);
  checkpoints->add("loop", progress);
  progress.epoch_steps = 0;  // of a checkpoint that knows of no epochs: one begins behind it
  const std::optional<std::int64_t> loaded = load();
  if (loaded) progress.step = saved = *loaded;
  progress.is_amid_epoch &= progress.step > progress.epoch_begin;
  progress.set_length(options, epoch_steps);
  if (!loaded) return;
  if (!progress.goes_on(options) && group->rank() == 0)
    LOCKSTEP_LOG(info, "the run that is resumed after step ", progress.step,
                 " has no steps left: ", options.epochs > 0 ? "its epochs" : "they",
                 " were all made");
  if (options.checkpoints.keep_best) checkpoints->keep(early_stopping.state().best_step);
  if (loop.on_resume) loop.on_resume(*loaded);
}

/// A run that was started again, by the same command line, is beyond what it was resumed from.
std::optional<std::int64_t> Loop::State::load() {
  if (options.resume_from.empty())
    return options.resume ? checkpoints->load_newest() : std::nullopt;
  const bool is_first = group->rank() == 0;
  const bool has_begun =
      is_first && options.resume && has_begun_with(options.resume_from, options.checkpoint_dir);
  if (has_begun)
    LOCKSTEP_LOG(warning, "the run of ", options.checkpoint_dir.string(), " began with ",
                 options.resume_from.string(),
                 " before, and goes on from its own newest checkpoint; to begin there again, give "
                 "another checkpoint_dir");
  if (comm::broadcast_scalar(*group, std::int64_t{has_begun}, 0, "whether it was before"))
    return checkpoints->load_newest();
  std::string from = is_first ? place_of(options.resume_from) : "";
  std::string name = is_first ? name_of(options.resume_from) : "";
  from = comm::broadcast_bytes(*group, from, 0, "what the run is resumed from");
  name = comm::broadcast_bytes(*group, name, 0, "the name of what the run is resumed from");
  const std::int64_t step = checkpoints->load(options.resume_from);
  progress.resumed_from = from;
  progress.resumed_by = name;
  // Snapshots in memory are asked for where the folder says what the run began with.
  if (options.checkpoints.snapshot_every > 0) checkpoints->save(step);
  return step;
}

/// What is due after a step.
void Loop::State::evaluate_and_save(const Loop& loop) {
  const bool is_best = progress.is_due && evaluate(loop);
  if (!checkpoints) return;
  const bool is_kept = is_best && options.checkpoints.keep_best;
  const bool is_kept_in_memory = takes_snapshot();  // by `is_due`
  if (is_kept_in_memory && !may_save(loop)) return;
  if (!(is_kept || checkpoints->is_due(progress.step))) return;
  if (!is_kept_in_memory && !may_save(loop)) return;
  if (is_kept) checkpoints->keep(progress.step);
  save(is_kept ? std::optional(progress.evaluation->metric) : std::nullopt);
}

/// @return whether it was never better.
bool Loop::State::evaluate(const Loop& loop) {
  progress.is_due = false;
  saved = -1;  // a checkpoint of this step does not know of it
  report.flush(tell(loop));
  const PhiloxState place = default_generator().state();
  const double own = [&] {
    const NoGradGuard no_recording;
    const comm::LongWork evaluation;
    return loop.evaluate();
  }();
  default_generator().set_state(place);
  const double metric = comm::broadcast_scalar(*group, own, 0, "metric of an evaluation");
  if (std::isnan(metric) && !std::exchange(has_warned_of_metric, true) && group->rank() == 0)
    LOCKSTEP_LOG(warning, "the metric of the evaluation behind step ", progress.step,
                 " is NaN, which early stopping counts as no improvement");
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
void Loop::has_mean_losses() noexcept { state_->are_losses_alike = true; }

checkpoint::Manager* Loop::checkpoints() noexcept {
  return state_->checkpoints ? &*state_->checkpoints : nullptr;
}

void Loop::check_has_not_run() const {
  LOCKSTEP_CHECK(
      !state_->is_resumed, InvalidArgument,
      "a loop with checkpoints runs once, and keeps the states of that run. Make another "
      "loop to run again, or further");
}

void Loop::start(std::optional<std::int64_t> epoch_steps) {
  State& state = *state_;
  check_run(*state.group, state.options, evaluate != nullptr, epoch_steps);
  state.resume(*this, epoch_steps.value_or(0));
  if (evaluate && state.progress.is_due) state.evaluate_and_save(*this);
  comm::note_step(steps());
  state.report.restart();
}

void Loop::begin_epoch() {
  State& state = *state_;
  LoopProgress& progress = state.progress;
  if (!progress.is_amid_epoch) return;
  progress.end_epoch();
  progress.set_length(state.options, progress.epoch_steps);
  progress.is_due = evaluate != nullptr;
  state.saved = -1;
  if (progress.is_due) state.evaluate_and_save(*this);
}

bool Loop::goes_on() const noexcept {
  return state_->progress.goes_on(state_->options) && !state_->is_stopped &&
         !state_->is_not_finite && !state_->early_stopping.should_stop();
}

void Loop::end_step(const StepResult& result, bool ends_epoch) {
  State& state = *state_;
  state.progress.add_step(state.options, ends_epoch, evaluate != nullptr);
  comm::note_step(steps());
  state.add_report(*this, result);
  state.is_stopped = state.stop && state.stop->after(steps());
  if (state.finds_losses_finite() && !state.is_stopped) state.evaluate_and_save(*this);
  comm::note_progress(steps());
}

int Loop::finish() {
  State& state = *state_;
  comm::note_end_of_steps();
  state.report.flush(state.tell(*this));
  state.losses.end(state.group->rank(), state.warns_of_losses());
  const bool is_finite = state.finds_losses_finite();
  if (state.checkpoints) {
    const bool is_whole = state.checkpoints->wait();  // which takes of the time that is left
    const bool is_saved = is_whole && state.saved == steps();
    const std::chrono::duration<double> save_time = state.checkpoints->save_time();
    if (is_finite && !is_saved &&
        (!state.is_stopped ||
         has_time(*state.group, *state.stop, save_time, state.options.checkpoint_dir)))
      state.save();
    if (!state.checkpoints->wait()) return not_saved;
  }
  if (!is_finite) return not_finite;
  return state.is_stopped ? StopRequest::exit_code : 0;
}

std::int64_t Loop::steps() const noexcept { return state_->progress.step; }
std::int64_t Loop::all_steps() const noexcept { return state_->progress.length; }
const std::optional<Evaluation>& Loop::last_evaluation() const noexcept {
  return state_->progress.evaluation;
}
const EarlyStopping& Loop::early_stopping() const noexcept { return state_->early_stopping; }

}  // namespace lockstep::train
