#include "train/loop_checks.hpp"

#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/folder.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/parallel/agreement.hpp"

namespace lockstep::train {
namespace {

void check_alone(const LoopOptions& options, bool evaluates,
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
  const auto text = [](const auto& value) { return lockstep::detail::concat(value); };
  const bool counts_epochs = options.epochs > 0 || evaluates;  // which are at their ends
  const std::vector<std::pair<std::string, std::string>> settings{
      {"steps", text(options.steps)},
      {"epochs", text(options.epochs)},
      {"whether there are evaluations", evaluates ? "true" : "false"},
      {"the number of batches of an epoch", counts_epochs ? text(epoch_steps.value_or(0)) : "any"},
      {"eval_every", text(options.eval_every)},
      {"patience", text(options.early_stopping.patience)},
      {"min_delta", text(options.early_stopping.min_delta)},
      {"terminate_on_nan", options.terminate_on_nan ? "true" : "false"}};
  parallel::check_same_settings(group, settings);
}

std::string newest_of(const std::filesystem::path& folder) {
  try {
    const auto newest = checkpoint::newest(folder);
    return newest ? lockstep::detail::concat("the one of step ", newest->step, " is the last")
                  : "there is none";
  } catch (const Error&) {
    return "those before stay";
  }
}

}  // namespace

void check(comm::Communicator& group, const LoopOptions& options) {
  LOCKSTEP_CHECK(options.steps >= 0 && options.epochs >= 0 && options.eval_every >= 0,
                 InvalidArgument, "a loop of ", options.steps, " steps and ", options.epochs,
                 " epochs with evaluations every ", options.eval_every,
                 " steps; give numbers from 0 on");
  LOCKSTEP_CHECK(options.resume_from.empty() || !options.checkpoint_dir.empty(), InvalidArgument,
                 "a loop that goes on from ", options.resume_from.string(),
                 " without a checkpoint_dir; give one, or load by a checkpoint::Manager");
  const auto text = [](bool value) { return value ? "true" : "false"; };
  const std::vector<std::pair<std::string, std::string>> settings{
      {"whether there is a checkpoint_dir", text(!options.checkpoint_dir.empty())},
      {"resume", text(options.resume)},
      {"whether there is a resume_from", text(!options.resume_from.empty())}};
  parallel::check_same_settings(group, settings);
}

void check_run(comm::Communicator& group, const LoopOptions& options, bool evaluates,
               std::optional<std::int64_t> epoch_steps) {
  check_same(group, options, evaluates, epoch_steps);
  check_alone(options, evaluates, epoch_steps);
}

bool has_time(comm::Communicator& group, const StopRequest& stop,
              std::chrono::duration<double> save_time, const std::filesystem::path& folder) {
  const std::chrono::duration<double> left =
      stop.time_left().value_or(std::chrono::milliseconds::max());
  const double least = comm::all_reduce_scalar(group, (left - save_time).count(),
                                               comm::ReduceOp::min(), "time that is left");
  if (least < 0 && group.rank() == 0)
    LOCKSTEP_LOG(warning, "a checkpoint takes ", save_time.count(), " s, ", -least,
                 " s more than is left: ", newest_of(folder));
  return least >= 0;
}

}  // namespace lockstep::train
