#include "checkpoint/retained.hpp"

#include <algorithm>
#include <utility>

#include "checkpoint/contents.hpp"
#include "checkpoint/exchange.hpp"
#include "checkpoint/names.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/observe/log.hpp"

namespace lockstep::checkpoint {

Retained::Retained(const std::filesystem::path& folder) : folder_(folder) {
  look();
  for (const auto& [step, metric] : metrics_) found_.insert(step);
  found_.insert(unread_.begin(), unread_.end());
  for (const std::int64_t step : damaged_) found_.erase(step);
}

/// Reads what is not known yet, and forgets what is not there any more.
void Retained::look() {
  std::set<std::int64_t> there, unread;
  std::vector<Manifest> whole;  // older than those that this start knows
  for (const Found& each : list(folder_)) {
    there.insert(each.step);
    if (!metrics_.contains(each.step)) try {
        look_at(each, whole);
      } catch (const CorruptData&) {  // told when it is loaded
        metrics_[each.step] = std::nullopt;
        damaged_.insert(each.step);
      } catch (const Error&) {  // it may be away for a while only
        unread.insert(each.step);
      }
  }
  unread_ = std::move(unread);
  std::ranges::stable_sort(
      whole, {}, [](const Manifest& each) { return std::pair(each.generation, each.save); });
  std::vector<std::int64_t> steps;
  for (const Manifest& each : whole) steps.push_back(each.step);
  whole_.insert(whole_.begin(), steps.begin(), steps.end());
  const auto is_gone = [&](std::int64_t step) { return !there.contains(step); };
  std::erase_if(metrics_, [&](const auto& each) { return is_gone(each.first); });
  std::erase_if(whole_, is_gone);
  std::erase_if(damaged_, is_gone);
  std::erase_if(found_,
                [&](std::int64_t step) { return is_gone(step) || damaged_.contains(step); });
}

/// One of a former start.
void Retained::look_at(const Found& found, std::vector<Manifest>& whole) {
  Manifest manifest = read_manifest(found.path);
  metrics_[found.step] = manifest.metric;
  const Verification noted = noted_verification(found.path, manifest);
  if (noted == Verification::damaged) damaged_.insert(found.step);
  if (noted != Verification::whole) return;
  manifest.step = found.step;
  whole.push_back(std::move(manifest));
}

void Retained::note(std::int64_t step, Verification found) const noexcept {
  error_of([&] {
    const std::filesystem::path checkpoint = folder_ / name_of_step(step);
    note_verification(checkpoint, read_manifest(checkpoint), found);
  });
}

bool Retained::is_whole(std::int64_t step) const {
  return std::ranges::find(whole_, step) != whole_.end();
}

template <class Condition>
std::optional<std::int64_t> Retained::best_of(const Condition& counts) const {
  std::optional<std::int64_t> best;
  double smallest = 0;
  for (const auto& [step, metric] : metrics_) {
    if (!metric || !counts(step) || (best && !(*metric < smallest))) continue;
    best = step;
    smallest = *metric;
  }
  return best;
}

void Retained::note_whole(std::int64_t step) {
  damaged_.erase(step);
  add_whole(step);
  note(step, Verification::whole);
}

void Retained::note_loaded(std::int64_t step, bool entirely) {
  loaded_ = step;
  if (entirely)
    note_whole(step);
  else if (!damaged_.contains(step))
    add_whole(step);
}

void Retained::add_whole(std::int64_t step) {
  std::erase(whole_, step);
  whole_.push_back(step);
}

void Retained::note_going_on(RunFolder& folder) {
  const auto step = std::exchange(loaded_, std::nullopt);
  if (!step || read_latest(folder_) == name_of_step(*step)) return;
  const std::string problem = error_of([&] { folder.make_newest(*step); });
  if (!problem.empty())
    LOCKSTEP_LOG(warning, "the run went back to step ", *step,
                 ", but one that starts again may not: ", problem);
}

void Retained::forget(std::int64_t step) {
  std::erase(whole_, step);
  found_.erase(step);
}

void Retained::note_not_loaded(std::int64_t step) {
  forget(step);
  if (!damaged_.contains(step)) note(step, Verification::unknown);
}

void Retained::note_damaged(std::int64_t step) {
  forget(step);
  damaged_.insert(step);
  note(step, Verification::damaged);
}

void Retained::note_saved(const Snapshot& snapshot) {
  loaded_.reset();
  forget(snapshot.step);
  damaged_.erase(snapshot.step);
  metrics_[snapshot.step] = snapshot.metric;
}

void Retained::prune(RunFolder& folder, const ManagerOptions& options, const Snapshot& saved) {
  look();
  Retention stay{.keep_last = options.keep_last,
                 .keep_every = options.keep_every,
                 .best = {},
                 .kept = saved.kept,
                 .whole = {},
                 .damaged = damaged_};
  const auto stays = [&](std::optional<std::int64_t> step) {
    if (step) stay.whole.insert(*step);
  };
  if (options.keep_best) {
    stay.best = best_of([&](std::int64_t step) { return !damaged_.contains(step); });
    stay.whole = unread_;
  }
  if (options.read_back && !whole_.empty()) stays(whole_.back());
  if (options.read_back && options.keep_best) {
    stays(best_of([&](std::int64_t step) { return is_whole(step); }));
    stays(best_of([&](std::int64_t step) { return is_whole(step) || found_.contains(step); }));
  }
  folder.prune(stay, saved.step);
}

}  // namespace lockstep::checkpoint
