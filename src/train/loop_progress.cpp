#include "train/loop_progress.hpp"

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include "checkpoint/contents.hpp"
#include "checkpoint/names.hpp"
#include "checkpoint/run_folder.hpp"
#include "checkpoint/state_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::train {

void LoopProgress::set_length(const LoopOptions& options, std::int64_t steps_of_epoch) {
  length = options.steps > 0 ? options.steps : std::numeric_limits<std::int64_t>::max();
  if (std::exchange(epoch_steps, steps_of_epoch) != steps_of_epoch) epoch_begin = step;
  if (options.epochs == 0) return;
  std::int64_t end = 0;
  const std::int64_t left = std::max<std::int64_t>(0, options.epochs - epochs);
  if (!__builtin_mul_overflow(left, epoch_steps, &end) &&
      !__builtin_add_overflow(epoch_begin, end, &end))
    length = std::min(length, end);
}

void LoopProgress::add_step(const LoopOptions& options, bool is_last_of_epoch, bool evaluates) {
  ++step;
  ends_epoch = is_last_of_epoch;
  is_due = evaluates && (ends_epoch || step == length ||
                         (options.eval_every > 0 && step % options.eval_every == 0));
  if (ends_epoch) end_epoch();
}

void LoopProgress::end_epoch() {
  ends_epoch = true;
  is_amid_epoch = false;
  ++epochs;
  epoch_begin = step;
}

namespace {

/// What a checkpoint says. @throws CorruptData, io::FileError.
LoopProgress told_by(const std::filesystem::path& checkpoint) {
  const std::string text =
      checkpoint::read_state_text(checkpoint, checkpoint::read_manifest(checkpoint));
  const auto state =
      checkpoint::parse_state_file(text, (checkpoint / checkpoint::state_name).string());
  LoopProgress progress;
  if (const auto loop = state.shared.find("loop"); loop != state.shared.end())
    state_of(progress).load(loop->second);
  return progress;
}

// A path has any bytes, and a value UTF-8: what is not ASCII is told in hexadecimal digits.
std::string text_of(std::filesystem::path place) {
  if (!place.has_filename()) place = place.parent_path();
  constexpr const char* digits = "0123456789ABCDEF";
  std::string text;
  for (const char each : place.native()) {
    const auto byte = static_cast<unsigned char>(each);
    if (byte < 0x80 && each != '%')
      text += each;
    else
      text += {'%', digits[byte / 16], digits[byte % 16]};
  }
  return text;
}

std::filesystem::path absolute_of(const std::filesystem::path& checkpoint) {
  std::error_code unknown;  // told by the load
  return std::filesystem::absolute(checkpoint, unknown).lexically_normal();
}

/// Of the newest checkpoint of a folder that can be read.
LoopProgress newest_progress_in(const std::filesystem::path& folder) try {
  for (const auto& found : checkpoint::in_order_of_trial(folder)) try {
      return told_by(found.path);
    } catch (const Error&) {  // told when it is loaded, and the one before is tried
    }
  return {};
} catch (const Error&) {  // told when they are looked for
  return {};
}

}  // namespace

std::string place_of(const std::filesystem::path& checkpoint) {
  std::error_code unknown;  // told by the load
  const std::filesystem::path place =
      std::filesystem::weakly_canonical(std::filesystem::absolute(checkpoint, unknown), unknown);
  return text_of(place.empty() ? absolute_of(checkpoint) : place);
}

std::string name_of(const std::filesystem::path& checkpoint) {
  return text_of(absolute_of(checkpoint));
}

bool has_begun_with(const std::filesystem::path& checkpoint, const std::filesystem::path& folder) {
  const std::string place = place_of(checkpoint);
  if (place.empty()) return false;
  const LoopProgress progress = newest_progress_in(folder);
  return progress.resumed_from == place || progress.resumed_by == name_of(checkpoint);
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
                if (!progress.resumed_by.empty()) values.set("resumed_by", progress.resumed_by);
                if (!progress.evaluation) return values;
                values.set("evaluated_step", progress.evaluation->step);
                values.set("metric", progress.evaluation->metric);
                values.set("is_best", progress.evaluation->is_best);
                values.set("evaluation_ends_epoch", progress.evaluation->ends_epoch);
                return values;
              },
          .load =
              [&progress](const checkpoint::Values& values) {
                progress.is_due = values.get<bool>("is_due");
                progress.ends_epoch = values.get<bool>("ends_epoch");
                progress.epochs = values.get<std::int64_t>("epochs");
                progress.epoch_begin = values.get<std::int64_t>("epoch_begin");
                progress.epoch_steps = values.get<std::int64_t>("epoch_steps");
                progress.is_amid_epoch = progress.epoch_steps > 0 && !progress.ends_epoch;
                progress.resumed_from = values.contains("resumed_from")
                                            ? values.get<std::string>("resumed_from")
                                            : std::string();
                progress.resumed_by = values.contains("resumed_by")
                                          ? values.get<std::string>("resumed_by")
                                          : std::string();
                progress.evaluation.reset();
                if (!values.contains("metric")) return;
                const auto is = [&](const char* name) {  // checkpoints of before have none
                  return values.contains(name) && values.get<bool>(name);
                };
                progress.evaluation = {.step = values.get<std::int64_t>("evaluated_step"),
                                       .metric = values.get<double>("metric"),
                                       .is_best = is("is_best"),
                                       .ends_epoch = is("evaluation_ends_epoch")};
              }};
}

}  // namespace lockstep::train
