#include "train/loop_progress.hpp"

#include <algorithm>
#include <limits>
#include <utility>

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

checkpoint::ValueState state_of(LoopProgress& progress) {
  return {.values =
              [&progress] {
                checkpoint::Values values{{"is_due", progress.is_due},
                                          {"ends_epoch", progress.ends_epoch},
                                          {"epochs", progress.epochs},
                                          {"epoch_begin", progress.epoch_begin},
                                          {"epoch_steps", progress.epoch_steps}};
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
                progress.evaluation.reset();
                if (!values.contains("metric")) return;
                progress.evaluation = {.step = values.get<std::int64_t>("evaluated_step"),
                                       .metric = values.get<double>("metric")};
              }};
}

}  // namespace lockstep::train
