#include "checkpoint/retained.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep::checkpoint {

Retained::Retained(const std::filesystem::path& folder) : folder_(folder) { find_best(); }

void Retained::find_best() {
  best_.reset();
  for (const Found& each : list(folder_)) try {
      const auto metric = metric_of(each.path);
      if (!metric || damaged_.contains(each.step) || (best_ && !(*metric < metric_))) continue;
      best_ = each.step;
      metric_ = *metric;
    } catch (const Error&) {  // a damaged one is told when it is loaded
    }
}

void Retained::note_loaded(std::int64_t step) {
  damaged_.erase(step);
  std::erase(whole_, step);
  whole_.push_back(step);
}

void Retained::note_read_back(std::int64_t step, Verdict verdict) {
  if (verdict == Verdict::whole) return note_loaded(step);
  if (verdict != Verdict::damaged) return;
  damaged_.insert(step);
  if (best_ == step) find_best();
}

void Retained::note_saved(const Snapshot& snapshot) {
  std::erase(whole_, snapshot.step);
  damaged_.erase(snapshot.step);
  if (best_ == snapshot.step) return find_best();  // it was replaced
  if (!snapshot.metric || (best_ && !(*snapshot.metric < metric_))) return;
  best_ = snapshot.step;
  metric_ = *snapshot.metric;
}

void Retained::prune(const RunFolder& folder, const ManagerOptions& options,
                     const Snapshot& saved) const {
  Retention stay{.keep_last = options.keep_last,
                 .keep_every = options.keep_every,
                 .best = options.keep_best ? best_ : std::nullopt,
                 .kept = saved.kept,
                 .whole = {},
                 .damaged = damaged_};
  if (!whole_.empty()) stay.whole = whole_.back();
  folder.prune(stay, saved.step);
}

}  // namespace lockstep::checkpoint
