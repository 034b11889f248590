#include "support/loop_options.hpp"

#include <lockstep/checkpoint/folder.hpp>

namespace examples {

namespace ls = lockstep;

namespace {

bool has_checkpoints(const std::filesystem::path& folder) try {
  return !ls::checkpoint::list(folder).empty();
} catch (const ls::Error&) {  // told where the run opens it
  return true;
}

}  // namespace

void add_checkpoint_options(CLI::App& app, LoopChoice& choice) {
  app.add_option("--checkpoint-dir", choice.folder,
                 "Save all that the run needs to go on, in this folder")
      ->check(writable_folder());
  app.add_option("--save-every", choice.save_every,
                 "Steps from one checkpoint to the next, or auto: as often as costs 1 %")
      ->check(CLI::IsMember({"auto"}) | whole_number(1));
  app.add_option("--keep", choice.keep,
                 "How many of the newest checkpoints stay, beside that of the best evaluation")
      ->check(whole_number(1, 1 << 20));
  app.add_option("--resume", choice.resume,
                 "auto: go on from the newest checkpoint if there is one; none; or a checkpoint");
  app.add_flag(
      "--partial", choice.partial,
      "Take over what fits of a checkpoint, and say what does not, instead of refusing it");
  app.add_option("--snapshot-every", choice.snapshot_every,
                 "Steps from one snapshot in memory to the next, for runs that lockstep_run starts "
                 "again; 0: none")
      ->check(whole_number(0));
  app.add_option("--snapshot-dir", choice.snapshot_folder,
                 "Of a file system in memory, on each host, for snapshots")
      ->check(CLI::ExistingDirectory);
}

void add_loop_options(CLI::App& app, LoopChoice& choice) {
  add_checkpoint_options(app, choice);
  app.add_option("--eval-every", choice.eval_every,
                 "Steps from one evaluation to the next, beside those at the ends of epochs and of "
                 "the run; 0: only there")
      ->check(whole_number(0));
  app.add_option("--patience", choice.patience,
                 "End the run after so many evaluations in a row without improvement; 0: never")
      ->check(whole_number(0));
}

void check_loop_options(const CLI::App& app, const LoopChoice& choice) {
  if (choice.resume.empty()) refuse(app, "--resume: give auto, none or a checkpoint");
  if (!choice.folder.empty()) {
    // One that is gone is not asked for again by a run that began with it.
    std::error_code unknown;  // told by the load
    if (choice.names_checkpoint() && !std::filesystem::is_directory(choice.resume, unknown) &&
        !has_checkpoints(choice.folder))
      refuse(app, "--resume: " + choice.resume +
                      " is not there; give a checkpoint, such as runs/a/step-1000");
    return;
  }
  for (const char* name :
       {"--save-every", "--keep", "--resume", "--partial", "--snapshot-every", "--snapshot-dir"})
    if (app.count(name) > 0)
      refuse(app, std::string(name) + " is about checkpoints; give --checkpoint-dir, too");
}

bool LoopChoice::names_checkpoint() const { return resume != "auto" && resume != "none"; }

ls::train::LoopOptions LoopChoice::options(std::int64_t steps, std::int64_t epochs) const {
  ls::train::LoopOptions options{.steps = steps,
                                 .epochs = epochs,
                                 .eval_every = eval_every,
                                 .early_stopping = {.patience = patience},
                                 .checkpoint_dir = folder,
                                 .checkpoints = {.keep_last = keep,
                                                 .keep_best = true,
                                                 .partial = partial,
                                                 .snapshot_every = snapshot_every,
                                                 .snapshot_folder = snapshot_folder}};
  if (save_every != "auto")
    options.checkpoints.interval =
        ls::checkpoint::SaveInterval::every_steps(std::stoll(save_every));
  options.resume = resume != "none";
  if (names_checkpoint()) options.resume_from = resume;
  return options;
}

}  // namespace examples
