#include "runtime/step_recording.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <ranges>
#include <shared_mutex>
#include <utility>

#include "lockstep/core/error.hpp"
#include "runtime/host_graph.hpp"

namespace lockstep {
namespace {

std::atomic<std::uint64_t> recordings{0};
std::atomic<int> open{0};
std::shared_mutex opening;

}  // namespace

bool StepRecording::is_any_open() noexcept { return open.load(std::memory_order_relaxed) > 0; }

bool StepRecording::unless_any_is_open(FunctionRef<void()> action) {
  const std::shared_lock none_begins(opening);
  if (is_any_open()) return false;
  action();
  return true;
}

StepRecording::Opening::Opening() {
  const std::lock_guard lock(opening);
  ++open;
}

StepRecording::Opening::~Opening() { --open; }

StepRecording::StepRecording(StreamRef stream, Allocator& memory, PhiloxState* random,
                             Collectives collectives)
    : stream_(stream),
      memory_(memory),
      random_(random),
      collectives_(collectives),
      number_(++recordings),
      launcher_(std::make_shared<StepLauncher>(stream.device)) {}

void StepRecording::fork(StreamRef stream) {
  if (std::ranges::find(forks_, stream) == forks_.end()) forks_.push_back(stream);
}

void StepRecording::note_memory(const void* memory, std::size_t bytes, StreamRef stream) {
  auto begin = reinterpret_cast<std::uintptr_t>(memory), end = begin + bytes;
  auto next = made_.upper_bound(end);
  while (next != made_.begin() && std::prev(next)->second >= begin) {
    next = std::prev(next);
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    next = made_.erase(next);
  }
  made_.emplace(begin, end);
  if (std::ranges::find(memory_streams_, stream) == memory_streams_.end())
    memory_streams_.push_back(stream);
}

bool StepRecording::writes_to(const void* memory, std::size_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const auto next = made_.lower_bound(begin + bytes);
  return next != made_.begin() && std::prev(next)->second > begin;
}

std::string StepRecording::lost_read() const {
  const std::string lost = read_.lost();
  return lost.empty() ? lost : lost + " is gone since it was captured";
}

std::string StepRecording::refusal() const {
  if (!refusal_.empty()) return refusal_;
  for (const Condition& condition : asked_at_return_)
    if (std::string reason = condition(); !reason.empty()) return reason;
  return {};
}

bool StepRecording::captures_collectives_of(std::string_view group) const {
  LOCKSTEP_CHECK(collectives_ != Collectives::refused, Unsupported,
                 "the step has collectives over the ranks of ", group,
                 ", which must capture it alike; give StepGraphOptions::group");
  return collectives_ == Collectives::captured;
}

std::string StepRecording::unmet_condition() const {
  if (std::string reason = launcher_->why_it_ended(); !reason.empty()) return reason;
  for (const Keeper& array : written_)
    if (!array.is_wanted()) return "a tensor that the step wrote to is gone since it was captured";
  if (std::string reason = lost_read(); !reason.empty()) return reason;
  for (const Condition& condition : conditions_)
    if (std::string reason = condition(); !reason.empty()) return reason;
  return {};
}

void StepRecording::run_before() const {
  for (const Action& action : before_) action();
}

void StepRecording::before_launch(Action action, Action undo) {
  HostGraph* const graph = HostGraph::recording();
  if (!graph) return before_launch(std::move(action));  // nothing throws midway
  const auto is_ahead = std::make_shared<bool>();       // of the launch
  before_launch([action = std::move(action), is_ahead] {
    action();
    *is_ahead = true;
  });
  graph->add([is_ahead] { *is_ahead = false; });
  when_launch_fails([undo = std::move(undo), is_ahead](const std::string&) {
    if (std::exchange(*is_ahead, false)) undo();
  });
}

void StepRecording::run_after() const {
  for (const Action& action : after_) action();
}

void StepRecording::run_failed(const std::string& reason) const {
  for (const auto& action : when_launch_fails_) action(reason);
}

void StepRecording::end() {
  for (const Action& action : std::exchange(at_end_, {})) action();
}

void StepRecording::conclude(bool captured) {
  if (captured) {
    for (const Action& action : when_captured_) action();
    read_.give_up_watched();
    // What nobody has now went with the step: none but launches know it.
    const auto gone = std::ranges::partition(written_, &Keeper::is_wanted);
    std::ranges::move(gone, std::back_inserter(unnamed_));
    written_.erase(gone.begin(), gone.end());
  } else {
    for (const Action& action : std::views::reverse(when_abandoned_)) action();
  }
  when_captured_.clear();
  when_abandoned_.clear();
}

StepRecording::Scope::Scope(StepRecording& recording) {
  LOCKSTEP_CHECK(!current_, InvalidArgument,
                 "a captured step within another: call the inner one's function instead");
  current_ = &recording;
}

StepRecording::Scope::~Scope() { current_ = nullptr; }

void refuse_in_captured_step(std::string_view what, std::string_view instead) {
  LOCKSTEP_CHECK(!StepRecording::current(), Unsupported, what,
                 " in a step that is being captured, where nothing runs: ", instead);
}

void refuse_in_captured_step(std::string_view what, std::string_view instead, Device device) {
  if (StepRecording::on(device)) refuse_in_captured_step(what, instead);
}

}  // namespace lockstep
