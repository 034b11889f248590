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
  explicit Gate(Tensor array) : RecurringGate(array.device()), array_(std::move(array)) {}
  void begin() { RecurringGate::begin(); }
  void end() noexcept;
  void close(comm::Work work);
  void wait() override;
  void stand() noexcept override;

 private:
  void update() noexcept;
  void remove() noexcept;

  Tensor array_;  // none at the end
  std::mutex mutex_;
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
  const std::lock_guard lock(mutex_);
  remove();
  array_.impl().storage->set_gate(nullptr);
  array_ = Tensor();
  RecurringGate::end();
}

void GatherGate::Gate::close(comm::Work work) {
  const std::lock_guard lock(mutex_);
  work_ = std::move(work);
  waited_.clear();
  closed_ = true;
  update();
  note_closed();
}

void GatherGate::Gate::wait() {
  const std::lock_guard lock(mutex_);
  if (!closed_) return;  // another thread has waited, while this one came here
  const StreamRef stream = current_stream(array_.device());
  if (std::ranges::find(waited_, stream) == waited_.end()) {
    work_.wait();
    waited_.push_back(stream);
  }
  if (!work_.is_completed()) return;
  if (const std::exception_ptr failure = work_.exception()) std::rethrow_exception(failure);
  remove();
}

void GatherGate::Gate::stand() noexcept {
  const std::lock_guard lock(mutex_);
  if (array_.defined()) update();
}

// With the mutex held.
void GatherGate::Gate::update() noexcept {
  const bool stands = closed_ || StepRecording::is_any_open();
  array_.impl().storage->set_gate(stands ? this : nullptr);
}

void GatherGate::Gate::remove() noexcept {
  closed_ = false;
  note_open();
  update();
}

GatherGate::GatherGate(Tensor array) : gate_(make_intrusive<Gate>(std::move(array))) {
  gate_->begin();
}
GatherGate::~GatherGate() { gate_->end(); }
void GatherGate::close(comm::Work work) { gate_->close(std::move(work)); }
void GatherGate::wait() { gate_->wait(); }

}  // namespace lockstep::parallel
