#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/comm/session.hpp"
#include "lockstep/train/early_stopping.hpp"
#include "lockstep/train/loop_options.hpp"
#include "lockstep/train/loop_reports.hpp"
#include "lockstep/train/same_samples.hpp"
#include "lockstep/train/step.hpp"

/// @file
/// The loop of a training program, with what all of them repeat.

namespace lockstep::train {

/// Runs a training to its end, or until it is told to stop: steps over epochs, evaluations, early
/// stopping, checkpoints, resumption, signals. What it trains is the caller's:
///
///     train::Loop loop(session, {.epochs = 3, .eval_every = 100,
///                                .early_stopping = {.patience = 5}, .checkpoint_dir = "runs/a"});
///     loop.evaluate = [&] { const auto scope = step.evaluation(); return validation_loss(); };
///     loop.on_step = [&](const train::StepReport& step) { ... };
///     return loop.run(loader, step);
///
/// Evaluations come after each `eval_every`-th step, at the end of each epoch and at the end of the
/// run. The best one's checkpoint stays. With a `checkpoint_dir`, SIGTERM and SIGUSR1 stop all
/// ranks behind a step, saved (StopRequest); started again the run goes on with the same bits: what
/// was evaluated is not evaluated again, and a stop for lack of improvement comes at the same step
/// (a loader of evaluations whose data set draws random numbers is to be added, too).
///
/// All ranks must make the same calls; one thread.
class Loop {
 public:
  /// Blocks; every rank must call it.
  /// @param session must outlive it. @throws InvalidArgument for options out of range, and on every
  /// rank where some have checkpoints, or go on from one, and others not; what checkpoint::Manager
  /// and StopRequest throw.
  Loop(Session& session, const LoopOptions& options);
  /// The same for the ranks of a group on the CPU, without signals.
  Loop(const CommunicatorPtr& group, const LoopOptions& options);
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop();

  /// @name Parts
  /// Set before `run`; each may be left out.
  /// @{

  /// Judges the model: smaller is better, such as a loss or an error rate. That of rank 0 counts.
  /// Its random draws leave the training's as they are; see also Step::evaluation.
  std::function<double()> evaluate;
  /// Hears of each step that has a loss, on every rank: one step late, but before it is saved, so
  /// that what this changes is saved with it. Without it no loss is read from a GPU, and so none
  /// found not finite, unless options say `terminate_on_nan`.
  std::function<void(const StepReport& step)> on_step;
  /// Hears of each evaluation, on every rank.
  std::function<void(const Evaluation& evaluation)> on_evaluation;
  /// Hears that a checkpoint was loaded, and how many steps it had made.
  std::function<void(std::int64_t steps)> on_resume;
  /// @}

  /// Adds all that a step changes to what checkpoints keep. `run` does so by itself with a Step
  /// that it is given, unless other tensors were added: then it warns where these are not its
  /// "model" and "optimizer".
  void add(const Step& step) {
    if (checkpoints()) step.add_to(*checkpoints());
  }
  /// As checkpoint::Manager::add; nothing without a `checkpoint_dir`. The loop itself adds the
  /// batches of `run`, this thread's generator, and what it knows of evaluations.
  template <class... T>
  void add(std::string name, T&... objects) {
    if (checkpoints()) checkpoints()->add(std::move(name), objects...);
  }
  /// What `run` returns where the end could not be saved.
  static constexpr int not_saved = 1;
  /// What it returns where a loss was not finite, with `terminate_on_nan`.
  static constexpr int not_finite = 3;

  /// The checkpoints; null without a `checkpoint_dir`.
  checkpoint::Manager* checkpoints() noexcept;

  /// Makes all steps that are left, and saves the end. Ranks first agree on their samples
  /// (agree_on_samples). Their epochs are of as many batches, unless the options count none and
  /// nothing is evaluated at their ends.
  /// @param batches a DataLoader, or what is a range, has a size and counts samples as one.
  /// @param step takes a batch, and returns a StepResult or a loss.
  /// @throws InvalidArgument behind another run, if there are checkpoints.
  /// @return the program's exit code, alike on all ranks: 0; StopRequest::exit_code if it shall be
  /// started again; `not_finite` by `terminate_on_nan`; `not_saved` if all steps were made, or a
  /// stop obeyed, but the last checkpoint could not be saved, as a warning has told: what was
  /// trained is there, and may be saved elsewhere, before a rank returns that code from
  /// Session::run, which ends all.
  template <checkpoint::CountsSamples Batches, class MakeStep>
  int run(Batches& batches, MakeStep&& step) {
    check_has_not_run();
    int replicas = 0;
    if constexpr (std::same_as<std::remove_cvref_t<MakeStep>, Step>) {
      replicas = step.replicas();
      has_mean_losses();
      if (checkpoints() && checkpoints()->tensor_names().empty()) add(step);
      warn_of_states_left_out(step);
    }
    agree_on_samples(group(), batches,
                     {.replicas = replicas, .are_saved = checkpoints() != nullptr});
    add("batches", batches);
    start(batches.size());
    if (batches.state().samples == 0) begin_epoch();
    while (goes_on())
      for (auto& batch : batches) {
        end_step({step(batch)}, /*ends_epoch=*/batches.state().samples == 0);
        if (!goes_on()) break;
      }
    return finish();
  }
  /// The same without epochs.
  /// @param step finds its own batch.
  template <class MakeStep>
  int run(MakeStep&& step) {
    start();
    while (goes_on()) end_step({step()});
    return finish();
  }

  /// @name What `run` consists of
  /// For a loop of one's own.
  /// @{

  /// Resumes, behind `agree_on_samples` of a loader. Blocks. @param epoch_steps how many steps an
  /// epoch has; none where there are no epochs.
  /// @throws InvalidArgument on every rank for a run without end, epochs without batches, early
  /// stopping without `evaluate`, and ranks that differ in these; what checkpoint::Manager throws.
  void start(std::optional<std::int64_t> epoch_steps = std::nullopt);
  /// To be called behind `start` where the batches stand at the beginning of an epoch: where the
  /// run was resumed amid one of which less than a batch was left, since batches have another size
  /// now, that one has ended, and is evaluated.
  void begin_epoch();
  /// Whether there is another step to make.
  bool goes_on() const noexcept;
  /// To be called after each step: tells of it, evaluates, saves, and looks for signals.
  void end_step(const StepResult& result, bool ends_epoch = false);
  /// Saves the end of the run, or where it stops, unless that is saved, or will not fit into the
  /// time that is left. @return as `run`.
  int finish();
  /// @}

  /// Steps made, over all starts.
  std::int64_t steps() const noexcept;
  /// How many there are to be; at most so many, where batches had another size at an earlier start.
  std::int64_t all_steps() const noexcept;
  /// The last evaluation, also one before the run was resumed.
  const std::optional<Evaluation>& last_evaluation() const noexcept;
  /// Which evaluation was the best, and whether that was too long ago.
  const EarlyStopping& early_stopping() const noexcept;

 private:
  comm::Communicator& group() noexcept;
  void has_mean_losses() noexcept;  // over all ranks
  void check_has_not_run() const;
  void warn_of_states_left_out(const Step& step);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::train
