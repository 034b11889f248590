#include "parallel/gather_gate.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/runtime/stream.hpp"
#include "runtime/step_recording.hpp"
#include "tensor/recurring_gate.hpp"

namespace lockstep::parallel {

/// Graphs may have it still when nobody closes it any more.
class GatherGate::Gate final : public RecurringGate {
 public:
  Gate(Tensor array, std::vector<IntrusivePtr<Storage>> parts)
      : RecurringGate(array.device()), array_(std::move(array)), memory_(std::move(parts)) {
    memory_.push_back(array_.impl().storage);
  }
  void begin() { RecurringGate::begin(); }
  void end() noexcept;
  void close(comm::Work work);
  void wait() override;
  void stand() noexcept override;

 private:
  void update() noexcept;
  void remove() noexcept;
  void put(MemoryGate* gate) noexcept {
    for (const auto& each : memory_) each->set_gate(gate);
  }

  Tensor array_;                               // none at the end
  std::vector<IntrusivePtr<Storage>> memory_;  // before which it stands
  // A capture asks while another thread, which may be another rank, waits for this one's
  // collective: so who waits holds the first, and the second only where `closed_` or the memory
  // changes.
  std::mutex waiting_, mutex_;
  bool closed_ = false;
  comm::Work work_;
  std::vector<StreamRef> waited_;  // streams that have
};

void GatherGate::Gate::end() noexcept {
  try {
    wait();
    array_.record_stream(current_stream(array_.device()));
  } catch (...) {
    // The failure was, or will be, reported by whoever waits for the group next.
  }
  const std::scoped_lock lock(waiting_, mutex_);
  remove();
  put(nullptr);
  memory_.clear();
  array_ = Tensor();
  RecurringGate::end();
}

void GatherGate::Gate::close(comm::Work work) {
  const std::scoped_lock lock(waiting_, mutex_);
  work_ = std::move(work);
  waited_.clear();
  closed_ = true;
  update();
  note_closed();
}

void GatherGate::Gate::wait() {
  const std::lock_guard waiting(waiting_);
  if (!closed_) return;  // another thread has waited, while this one came here
  const StreamRef stream = current_stream(array_.device());
  if (std::ranges::find(waited_, stream) == waited_.end()) {
    work_.wait();
    waited_.push_back(stream);
  }
  if (!work_.is_completed()) return;
  if (const std::exception_ptr failure = work_.exception()) std::rethrow_exception(failure);
  const std::lock_guard lock(mutex_);
  remove();
}

void GatherGate::Gate::stand() noexcept {
  const std::lock_guard lock(mutex_);
  if (array_.defined()) update();
}

// With the mutex held.
void GatherGate::Gate::update() noexcept {
  const bool stands = closed_ || StepRecording::is_any_open();
  put(stands ? this : nullptr);
}

void GatherGate::Gate::remove() noexcept {
  closed_ = false;
  note_open();
  update();
}

GatherGate::GatherGate(Tensor array, std::vector<IntrusivePtr<Storage>> parts)
    : gate_(make_intrusive<Gate>(std::move(array), std::move(parts))) {
  gate_->begin();
}
GatherGate::~GatherGate() { gate_->end(); }
void GatherGate::close(comm::Work work) { gate_->close(std::move(work)); }
void GatherGate::wait() { gate_->wait(); }

}  // namespace lockstep::parallel
