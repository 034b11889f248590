#include "support/checkpoints.hpp"

#include <chrono>
#include <iostream>

#include <lockstep/comm/host_values.hpp>
#include <lockstep/core/error.hpp>

namespace examples {
namespace {

namespace ls = lockstep;

ls::checkpoint::ManagerOptions manager_options(const CheckpointOptions& options) {
  ls::checkpoint::ManagerOptions manager{.keep_last = options.keep};
  if (options.save_every != "auto")
    manager.interval = ls::checkpoint::SaveInterval::every_steps(std::stoll(options.save_every));
  return manager;
}

}  // namespace

void add_checkpoint_options(CLI::App& app, CheckpointOptions& options) {
  app.add_option("--checkpoint-dir", options.folder,
                 "Save all that the run needs to go on, in this folder")
      ->check(writable());
  app.add_option("--save-every", options.save_every,
                 "Steps from one checkpoint to the next, or auto: as often as costs 1 %")
      ->check(CLI::IsMember({"auto"}) | whole_number(1));
  app.add_option("--keep", options.keep, "How many of the newest checkpoints stay")
      ->check(whole_number(1, 1 << 20));
  app.add_option("--resume", options.resume,
                 "auto: go on from the newest checkpoint if there is one; none; or a checkpoint")
      ->check(CLI::IsMember({"auto", "none"}) | CLI::ExistingDirectory);
}

void check_checkpoint_options(const CLI::App& app, const CheckpointOptions& options) {
  if (!options.folder.empty()) return;
  for (const char* name : {"--save-every", "--keep", "--resume"})
    if (app.count(name) > 0)
      refuse(app, std::string(name) + " is about checkpoints; give --checkpoint-dir, too");
}

Checkpoints::Checkpoints(const CheckpointOptions& options, ls::Session& session)
    : options_(options), session_(session) {
  if (options.folder.empty()) return;
  stop_.emplace(session);
  manager_.emplace(options.folder, session.host_world(), manager_options(options));
}

std::int64_t Checkpoints::resume() {
  if (!manager_ || options_.resume == "none") return 0;
  const auto step = options_.resume == "auto" ? manager_->load_newest()
                                              : std::optional(manager_->load(options_.resume));
  saved_ = step.value_or(-1);
  if (step && session_.is_main()) std::cout << "goes on after step " << *step << std::endl;
  return step.value_or(0);
}

bool Checkpoints::after_step(std::int64_t step) {
  if (!manager_) return false;
  is_stopped_ = stop_->after(step);
  if (!is_stopped_ && manager_->save_if_due(step)) saved_ = step;
  return is_stopped_;
}

// The rank with the least time decides for all.
bool Checkpoints::has_time() {
  if (!is_stopped_) return true;
  const std::chrono::duration<double> left =
      stop_->time_left().value_or(std::chrono::milliseconds::max());
  const double least =
      ls::comm::all_reduce_scalar(*session_.host_world(), (left - manager_->save_time()).count(),
                                  ls::comm::ReduceOp::min(), "time that is left");
  if (least < 0 && session_.is_main())
    std::cout << "a checkpoint takes " << manager_->save_time().count() << " s, " << -least
              << " s more than is left: the one of step " << saved_ << " is the last" << std::endl;
  return least >= 0;
}

void Checkpoints::finish(std::int64_t step) {
  if (!manager_) return;
  const bool is_saved = saved_ == step && manager_->wait();
  if (!is_saved && has_time()) manager_->save(step);
  LOCKSTEP_CHECK(manager_->wait(), Error, "the last checkpoint was not saved: ", manager_->error());
}

}  // namespace examples
