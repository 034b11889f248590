#include "engine/race_detector.hpp"

#include <algorithm>
#include <utility>

namespace simgpu {

RaceDetector::History::iterator RaceDetector::split_at(std::uintptr_t address) {
  const auto after = history_.lower_bound(address);
  if (after != history_.end() && after->first == address) return after;
  if (after == history_.begin()) return after;
  const auto holder = std::prev(after);
  if (holder->second.end <= address) return after;
  Piece tail = holder->second;
  holder->second.end = address;
  return history_.emplace_hint(after, address, std::move(tail));
}

void RaceDetector::check(const History::value_type& piece, const ActorPtr& actor, bool writes,
                         std::vector<Race>& races) const {
  const auto compare = [&](const ActorPtr& other, bool other_writes) {
    if (other == nullptr || other == actor || other->comes_before(*actor) ||
        actor->comes_before(*other))
      return;
    if (other->is_host && actor->is_host) return;  // what the thread sanitizer is for
    for (const Race& race : races)
      if (race.first == other || race.second == other) return;
    Race race{other,
              actor,
              other_writes,
              writes,
              reinterpret_cast<const void*>(piece.first),
              piece.second.end - piece.first};
    if (actor->number < other->number) {  // what a kernel touches becomes known when it runs
      std::swap(race.first, race.second);
      std::swap(race.first_writes, race.second_writes);
    }
    races.push_back(std::move(race));
  };
  compare(piece.second.write, true);
  for (const Covered& covered : piece.second.covered)
    if (actor->number < covered.by && (writes || covered.writes))
      compare(covered.actor, covered.writes);
  if (!writes) return;
  for (const ActorPtr& read : piece.second.reads) compare(read, false);
}

void RaceDetector::cover(Piece& piece, const ActorPtr& actor, bool writes, std::uint64_t by) const {
  if (actor == nullptr || expected_.empty() || *expected_.begin() >= by) return;
  piece.covered.push_back({actor, writes, by});
}

void RaceDetector::note(Piece& piece, const ActorPtr& actor, bool writes) const {
  std::erase_if(piece.covered, [&](const Covered& covered) {
    return expected_.empty() || *expected_.begin() >= covered.by;
  });
  // An access that became known late, of an operation that came before the last write.
  if (piece.write != nullptr && piece.write != actor && actor->comes_before(*piece.write))
    return cover(piece, actor, writes, piece.write->number);
  const auto is_covered = [&](const ActorPtr& read) {
    const bool is =
        read->comes_before(*actor) && (writes || read->epoch.component == actor->epoch.component);
    if (is && read != actor) cover(piece, read, false, actor->number);
    return is;
  };
  std::erase_if(piece.reads, is_covered);
  if (!writes) return piece.reads.push_back(actor);
  if (piece.write != actor) cover(piece, piece.write, true, actor->number);
  piece.write = actor;
}

std::vector<Race> RaceDetector::add(const ActorPtr& actor, const Access& access) {
  std::vector<Race> races;
  if (access.bytes == 0) return races;
  const auto begin = reinterpret_cast<std::uintptr_t>(access.data);
  const std::uintptr_t end = begin + access.bytes;
  split_at(end);
  auto at = split_at(begin);
  std::uintptr_t reached = begin;
  while (reached < end) {
    if (at == history_.end() || at->first > reached) {
      const std::uintptr_t gap_end = at == history_.end() ? end : std::min(end, at->first);
      at = history_.emplace_hint(at, reached, Piece{gap_end, nullptr, {}, {}});
    }
    check(*at, actor, access.writes, races);
    note(at->second, actor, access.writes);
    reached = at->second.end;
    ++at;
  }
  if (access.writes) merge(begin, end);
  return races;
}

void RaceDetector::merge(std::uintptr_t begin, std::uintptr_t end) {
  auto at = history_.find(begin);
  while (at != history_.end() && at->second.end < end) {
    const auto next = std::next(at);
    if (next == history_.end() || next->first != at->second.end) break;
    if (next->second.write == at->second.write && next->second.reads == at->second.reads &&
        next->second.covered == at->second.covered) {
      at->second.end = next->second.end;
      history_.erase(next);
    } else {
      at = next;
    }
  }
}

void RaceDetector::forget(const void* data, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const auto last = split_at(begin + bytes);
  const auto first = split_at(begin);
  history_.erase(first, last);
}

std::shared_ptr<const Actor> RaceDetector::writer_near(const void* address, const void* begin,
                                                       const void* end) const {
  const auto number = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data); };
  const auto is_writer = [](const History::value_type& piece) {
    return piece.second.write != nullptr && !piece.second.write->changes_hands;
  };
  const auto middle = history_.lower_bound(number(address));
  for (auto at = middle; at != history_.begin() && std::prev(at)->second.end > number(begin);)
    if (is_writer(*--at)) return at->second.write;
  for (auto at = middle; at != history_.end() && at->first < number(end); ++at)
    if (is_writer(*at)) return at->second.write;
  return nullptr;
}

namespace {

std::string step(const Actor& actor, bool writes) {
  const char* const does = actor.is_host && actor.changes_hands ? " gives it back"
                           : writes                             ? " writes it"
                                                                : " reads it";
  return actor.name + does + " on " + actor.place + "\n      at " + describe(actor.site) + "\n";
}

// "stream 3" of "stream 3 (non-blocking, device 0)".
std::string short_name(const Actor& actor) { return actor.place.substr(0, actor.place.find(" (")); }

std::string missing_edge(const Actor& first, const Actor& second) {
  const std::string before = short_name(first), after = short_name(second);
  if (second.is_host)
    return "nothing makes the host wait for " + before + ": synchronise an event recorded after " +
           first.name + ", or the stream, first";
  if (first.is_host)
    return "nothing makes the host wait for " + after + ", where " + second.name +
           " was queued before: synchronise an event recorded after it, or the stream, first";
  return "nothing makes " + after + " wait for " + before + ": record an event after " +
         first.name + " and let " + after + " wait for it";
}

}  // namespace

std::string explain(const Race& race) {
  return "  first   " + step(*race.first, race.first_writes) + "  second  " +
         step(*race.second, race.second_writes) +
         "  missing edge: " + missing_edge(*race.first, *race.second);
}

}  // namespace simgpu
