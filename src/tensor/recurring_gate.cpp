#include "tensor/recurring_gate.hpp"

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/step_recording.hpp"

namespace lockstep {
namespace {

struct Entry {
  RecurringGate* gate;
  std::optional<std::thread::id> closed_by;
};

std::mutex mutex;
std::vector<Entry> entries;

/// Held, so that they outlive what is done with them.
template <class Condition>
std::vector<IntrusivePtr<RecurringGate>> gates_that(Condition condition) {
  std::vector<IntrusivePtr<RecurringGate>> gates;
  const std::lock_guard lock(mutex);
  for (const Entry& entry : entries)
    if (condition(entry)) gates.emplace_back(entry.gate);
  return gates;
}

void set_closed_by(const RecurringGate* gate, std::optional<std::thread::id> thread) noexcept {
  const std::lock_guard lock(mutex);
  const auto entry = std::ranges::find(entries, gate, &Entry::gate);
  if (entry != entries.end()) entry->closed_by = thread;
}

}  // namespace

void RecurringGate::open(TensorImpl&) {
  if (StepRecording* const step = StepRecording::on(device_)) step->part<PassedGates>().add(*this);
  wait();
}

void RecurringGate::begin() {
  {
    const std::lock_guard lock(mutex);
    entries.push_back({this, std::nullopt});
  }
  stand();
}

void RecurringGate::end() noexcept {
  const std::lock_guard lock(mutex);
  std::erase_if(entries, [this](const Entry& entry) { return entry.gate == this; });
}

void RecurringGate::note_closed() { set_closed_by(this, std::this_thread::get_id()); }
void RecurringGate::note_open() noexcept { set_closed_by(this, std::nullopt); }

void PassedGates::add(RecurringGate& gate) {
  if (std::ranges::find(gates_, &gate, &IntrusivePtr<RecurringGate>::get) == gates_.end())
    gates_.emplace_back(&gate);
}

void PassedGates::wait() const {
  for (const auto& gate : gates_) gate->wait();
}

void stand_for_captures() {
  for (const auto& gate : gates_that([](const Entry&) { return true; })) gate->stand();
}

void wait_at_gates() {
  const auto is_own = [](const Entry& entry) {
    return entry.closed_by == std::this_thread::get_id();
  };
  for (const auto& gate : gates_that(is_own)) gate->wait();
}

}  // namespace lockstep
