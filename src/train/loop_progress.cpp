#include "train/loop_progress.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "checkpoint/contents.hpp"
#include "checkpoint/names.hpp"
#include "checkpoint/state_file.hpp"
#include "lockstep/checkpoint/folder.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::train {

void LoopProgress::set_length(const LoopOptions& options, std::int64_t steps_of_epoch) {
  length = options.steps > 0 ? options.steps : std::numeric_limits<std::int64_t>::max();
  if (std::exchange(epoch_steps, steps_of_epoch) != steps_of_epoch) epoch_begin = step;
  if (options.epochs > 0)
    length = std::min(
        length, epoch_begin + std::max<std::int64_t>(0, options.epochs - epochs) * epoch_steps);
}

void LoopProgress::add_step(const LoopOptions& options, bool is_last_of_epoch, bool evaluates) {
  ++step;
  ends_epoch = is_last_of_epoch;
  is_due = evaluates && (ends_epoch || step == length ||
                         (options.eval_every > 0 && step % options.eval_every == 0));
  if (!ends_epoch) return;
  ++epochs;
  epoch_begin = step;
}

std::string resumed_from(const std::filesystem::path& folder) try {
  const auto newest = checkpoint::newest(folder);
  if (!newest) return {};
  for (const auto& file : checkpoint::read_manifest(newest->path).files) {
    if (file.name != checkpoint::state_name) continue;
    const auto state = checkpoint::parse_state_file(checkpoint::read_checked(newest->path, file),
                                                    newest->path.string());
    LoopProgress progress;
    if (const auto loop = state.shared.find("loop"); loop != state.shared.end())
      state_of(progress).load(loop->second);
    return progress.resumed_from;
  }
  return {};
} catch (const Error&) {  // told when it is loaded
  return {};
}

checkpoint::ValueState state_of(LoopProgress& progress) {
  return {.values =
              [&progress] {
                checkpoint::Values values{{"is_due", progress.is_due},
                                          {"ends_epoch", progress.ends_epoch},
                                          {"epochs", progress.epochs},
                                          {"epoch_begin", progress.epoch_begin},
                                          {"epoch_steps", progress.epoch_steps}};
                if (!progress.resumed_from.empty())
                  values.set("resumed_from", progress.resumed_from);
                if (!progress.evaluation) return values;
                values.set("evaluated_step", progress.evaluation->step);
                values.set("metric", progress.evaluation->metric);
                return values;
              },
          .load =
              [&progress](const checkpoint::Values& values) {
                progress.is_due = values.get<bool>("is_due");
                progress.ends_epoch = values.get<bool>("ends_epoch");
                progress.epochs = values.get<std::int64_t>("epochs");
                progress.epoch_begin = values.get<std::int64_t>("epoch_begin");
                progress.epoch_steps = values.get<std::int64_t>("epoch_steps");
                progress.resumed_from = values.contains("resumed_from")
                                            ? values.get<std::string>("resumed_from")
                                            : std::string();
                progress.evaluation.reset();
                if (!values.contains("metric")) return;
                progress.evaluation = {.step = values.get<std::int64_t>("evaluated_step"),
                                       .metric = values.get<double>("metric")};
              }};
}

}  // namespace lockstep::train
