#include "lockstep/train/loop.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/stop_request.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/parallel/agreement.hpp"
#include "train/late_report.hpp"

namespace lockstep::train {
namespace {

void check(const LoopOptions& options) {
  LOCKSTEP_CHECK(options.steps >= 0 && options.epochs >= 0 && options.eval_every >= 0,
                 InvalidArgument, "a loop of ", options.steps, " steps and ", options.epochs,
                 " epochs with evaluations every ", options.eval_every,
                 " steps; give numbers from 0 on");
  LOCKSTEP_CHECK(options.resume_from.empty() || !options.checkpoint_dir.empty(), InvalidArgument,
                 "a loop that goes on from ", options.resume_from.string(),
                 " without a checkpoint_dir; give one, or load by a checkpoint::Manager");
}

void check_run(const LoopOptions& options, bool evaluates,
               std::optional<std::int64_t> epoch_steps) {
  LOCKSTEP_CHECK(!epoch_steps || *epoch_steps > 0, InvalidArgument,
                 "a loop over no batches; give more samples, or smaller batches");
  LOCKSTEP_CHECK(options.steps > 0 || options.epochs > 0, InvalidArgument,
                 "a loop without end; give steps or epochs");
  LOCKSTEP_CHECK(options.epochs == 0 || epoch_steps, InvalidArgument, "a loop of ", options.epochs,
                 " epochs of a step that finds its own batches; give steps");
  const std::int64_t evaluations = options.early_stopping.patience;
  LOCKSTEP_CHECK(evaluates || (evaluations == 0 && options.eval_every == 0), InvalidArgument,
                 "a loop that evaluates every ", options.eval_every,
                 " steps and stops for lack of improvement after ", evaluations,
                 " evaluations; set its `evaluate`");
}

/// Ranks that evaluate, or end, after other steps would wait for each other.
void check_same(comm::Communicator& group, const LoopOptions& options, bool evaluates,
                std::optional<std::int64_t> epoch_steps) {
  const auto text = [](const auto& value) { return detail::concat(value); };
  const std::vector<std::pair<std::string, std::string>> settings{
      {"steps", text(options.steps)},
      {"epochs", text(options.epochs)},
      {"the number of batches of an epoch", text(epoch_steps.value_or(0))},
      {"eval_every", text(options.eval_every)},
      {"whether there are evaluations", evaluates ? "true" : "false"},
      {"patience", text(options.early_stopping.patience)},
      {"min_delta", text(options.early_stopping.min_delta)}};
  parallel::check_same_settings(group, settings);
}

double of_rank_0(comm::Communicator& group, double value) {
  const std::string_view bytes(reinterpret_cast<const char*>(&value), sizeof value);
  const std::string first = comm::broadcast_bytes(group, bytes, 0, "metric of an evaluation");
  std::memcpy(&value, first.data(), sizeof value);
  return value;
}

}  // namespace

struct Loop::State {
  State(Session* session, CommunicatorPtr ranks, const LoopOptions& given)
      : group(std::move(ranks)), options(given), early_stopping(given.early_stopping) {
    check(options);
    if (options.checkpoint_dir.empty()) return;
    if (session) stop.emplace(*session);
    checkpoints.emplace(options.checkpoint_dir, group, options.checkpoints);
  }

  CommunicatorPtr group;
  LoopOptions options;
  EarlyStopping early_stopping;
  std::optional<StopRequest> stop;  // none without checkpoints
  std::optional<checkpoint::Manager> checkpoints;
  LateReport report;
  std::optional<Evaluation> evaluation;  // the last
  bool is_due = false;                   // an evaluation after this step
  bool ends_epoch = false;               // this step
  bool is_stopped = false;
  std::int64_t step = 0, length = 0;
  std::int64_t epochs = 0, epoch_begin = 0;  // ended, and the step after which this one began
  std::int64_t epoch_steps = 0;              // of this one; 0: there are no epochs
  std::int64_t saved = -1;                   // the last step that was

  void resume(const Loop& loop, std::int64_t steps_of_epoch);
  void evaluate_and_save(const Loop& loop);
  bool evaluate(const Loop& loop);
  void save(std::optional<double> metric = std::nullopt);
  bool has_time();
  void set_length(std::int64_t steps_of_epoch);
  checkpoint::ValueState state();
};

checkpoint::ValueState Loop::State::state() {
  return {.values =
              [this] {
                checkpoint::Values values{{"is_due", is_due},
                                          {"ends_epoch", ends_epoch},
                                          {"epochs", epochs},
                                          {"epoch_begin", epoch_begin},
                                          {"epoch_steps", epoch_steps}};
                if (!evaluation) return values;
                values.set("evaluated_step", evaluation->step);
                values.set("metric", evaluation->metric);
                return values;
              },
          .load =
              [this](const checkpoint::Values& values) {
                is_due = values.get<bool>("is_due");
                ends_epoch = values.get<bool>("ends_epoch");
                epochs = values.get<std::int64_t>("epochs");
                epoch_begin = values.get<std::int64_t>("epoch_begin");
                epoch_steps = values.get<std::int64_t>("epoch_steps");
                evaluation.reset();
                if (!values.contains("metric")) return;
                evaluation = {.step = values.get<std::int64_t>("evaluated_step"),
                              .metric = values.get<double>("metric")};
              }};
}

void Loop::State::resume(const Loop& loop, std::int64_t steps_of_epoch) {
  set_length(steps_of_epoch);
  if (!checkpoints) return;
  checkpoints->add("random", default_generator());
  checkpoints->add("early_stopping", early_stopping);
  checkpoints->add("loop", state());
  std::optional<std::int64_t> loaded;
  if (!options.resume_from.empty())
    loaded = checkpoints->load(options.resume_from);
  else if (options.resume)
    loaded = checkpoints->load_newest();
  if (!loaded) return;
  step = saved = *loaded;
  set_length(steps_of_epoch);
  if (options.checkpoints.keep_best) checkpoints->keep(early_stopping.state().best_step);
  if (loop.on_resume) loop.on_resume(step);
}

/// Where batches have another size than before, nobody knows how many are left of the epoch: its
/// end counts, as `end_step` hears of it.
void Loop::State::set_length(std::int64_t steps_of_epoch) {
  length = options.steps > 0 ? options.steps : std::numeric_limits<std::int64_t>::max();
  if (std::exchange(epoch_steps, steps_of_epoch) != steps_of_epoch) epoch_begin = step;
  if (options.epochs > 0)
    length = std::min(
        length, epoch_begin + std::max<std::int64_t>(0, options.epochs - epochs) * epoch_steps);
}

/// What is due after a step.
void Loop::State::evaluate_and_save(const Loop& loop) {
  const bool is_best = is_due && evaluate(loop);
  if (!checkpoints) return;
  if (is_best && options.checkpoints.keep_best) {
    checkpoints->keep(step);
    save(evaluation->metric);
  } else if (checkpoints->save_if_due(step)) {
    saved = step;
  }
}

/// @return whether it was never better.
bool Loop::State::evaluate(const Loop& loop) {
  is_due = false;
  saved = -1;  // a checkpoint of this step does not know of it
  report.flush(loop.on_step);
  const PhiloxState place = default_generator().state();
  const double own = [&] {
    const NoGradGuard no_recording;
    return loop.evaluate();
  }();
  default_generator().set_state(place);
  const double metric = of_rank_0(*group, own);
  evaluation = {.step = step,
                .metric = metric,
                .is_best = early_stopping.update(step, metric),
                .ends_epoch = ends_epoch};
  if (loop.on_evaluation) loop.on_evaluation(*evaluation);
  report.restart();
  return evaluation->is_best;
}

void Loop::State::save(std::optional<double> metric) {
  checkpoints->save(step, metric);
  saved = step;
}

// The rank with the least time decides for all.
bool Loop::State::has_time() {
  if (!is_stopped) return true;
  const std::chrono::duration<double> left =
      stop->time_left().value_or(std::chrono::milliseconds::max());
  const double least = comm::all_reduce_scalar(*group, (left - checkpoints->save_time()).count(),
                                               comm::ReduceOp::min(), "time that is left");
  if (least < 0 && group->rank() == 0)
    LOCKSTEP_LOG(warning, "a checkpoint takes ", checkpoints->save_time().count(), " s, ", -least,
                 " s more than is left: the one of step ", saved, " is the last");
  return least >= 0;
}

Loop::Loop(Session& session, const LoopOptions& options)
    : state_(std::make_unique<State>(&session, session.host_world(), options)) {}

Loop::Loop(const CommunicatorPtr& group, const LoopOptions& options)
    : state_(std::make_unique<State>(nullptr, group, options)) {}

Loop::~Loop() = default;

checkpoint::Manager* Loop::checkpoints() noexcept {
  return state_->checkpoints ? &*state_->checkpoints : nullptr;
}

void Loop::start(std::optional<std::int64_t> epoch_steps) {
  State& state = *state_;
  const bool evaluates = evaluate != nullptr;
  check_same(*state.group, state.options, evaluates, epoch_steps);
  check_run(state.options, evaluates, epoch_steps);
  state.resume(*this, epoch_steps.value_or(0));
  if (state.is_due && evaluate) state.evaluate_and_save(*this);
  state.report.restart();
}

bool Loop::goes_on() const noexcept {
  const State& state = *state_;
  const std::int64_t epochs = state.options.epochs;
  return state.step < state.length && (epochs == 0 || state.epochs < epochs) && !state.is_stopped &&
         !state.early_stopping.should_stop();
}

void Loop::end_step(const StepResult& result, bool ends_epoch) {
  State& state = *state_;
  ++state.step;
  if (on_step && result.loss.defined()) state.report.add(state.step, result, on_step);
  const std::int64_t every = state.options.eval_every;
  state.is_due = evaluate && (ends_epoch || state.step == state.length ||
                              (every > 0 && state.step % every == 0));
  state.ends_epoch = ends_epoch;
  if (ends_epoch) {
    ++state.epochs;
    state.epoch_begin = state.step;
  }
  state.is_stopped = state.stop && state.stop->after(state.step);
  if (!state.is_stopped) state.evaluate_and_save(*this);
}

int Loop::finish() {
  State& state = *state_;
  state.report.flush(on_step);
  if (state.checkpoints) {
    const bool is_saved = state.saved == state.step && state.checkpoints->wait();
    if (!is_saved && state.has_time()) state.save();
    LOCKSTEP_CHECK(state.checkpoints->wait(), Error,
                   "the last checkpoint was not saved: ", state.checkpoints->error());
  }
  return state.is_stopped ? StopRequest::exit_code : 0;
}

std::int64_t Loop::steps() const noexcept { return state_->step; }
std::int64_t Loop::all_steps() const noexcept { return state_->length; }
const std::optional<Evaluation>& Loop::last_evaluation() const noexcept {
  return state_->evaluation;
}
const EarlyStopping& Loop::early_stopping() const noexcept { return state_->early_stopping; }

}  // namespace lockstep::train
