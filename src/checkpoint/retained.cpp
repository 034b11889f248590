#include "checkpoint/retained.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep::checkpoint {

Retained::Retained(const std::filesystem::path& folder) : folder_(folder) {
  look();
  for (const auto& [step, metric] : metrics_) found_.insert(step);
  found_.insert(unread_.begin(), unread_.end());
}

/// Reads metrics that are not known yet, and forgets what is not there any more.
void Retained::look() {
  std::set<std::int64_t> there, unread;
  for (const Found& each : list(folder_)) {
    there.insert(each.step);
    if (!metrics_.contains(each.step)) try {
        metrics_[each.step] = metric_of(each.path);
      } catch (const CorruptData&) {  // told when it is loaded
        metrics_[each.step] = std::nullopt;
      } catch (const Error&) {  // it may be away for a while only
        unread.insert(each.step);
      }
  }
  unread_ = std::move(unread);
  const auto is_gone = [&](std::int64_t step) { return !there.contains(step); };
  std::erase_if(metrics_, [&](const auto& each) { return is_gone(each.first); });
  std::erase_if(whole_, is_gone);
  std::erase_if(found_, is_gone);
  std::erase_if(damaged_, is_gone);
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
  std::erase(whole_, step);
  whole_.push_back(step);
}

void Retained::note_not_loaded(std::int64_t step) {
  std::erase(whole_, step);
  found_.erase(step);
}

void Retained::note_damaged(std::int64_t step) {
  note_not_loaded(step);
  damaged_.insert(step);
}

void Retained::note_saved(const Snapshot& snapshot) {
  note_not_loaded(snapshot.step);
  damaged_.erase(snapshot.step);
  metrics_[snapshot.step] = snapshot.metric;
}

void Retained::prune(const RunFolder& folder, const ManagerOptions& options,
                     const Snapshot& saved) {
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
