#include "parallel/gather_gate.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "tensor/thread_gates.hpp"

namespace lockstep::parallel {

GatherGate::~GatherGate() {
  try {
    wait();
    array_.record_stream(current_stream(array_.device()));
  } catch (...) {
    // The failure was, or will be, reported by whoever waits for the group next.
  }
  remove();
}

void GatherGate::close(comm::Work work) {
  const std::lock_guard lock(mutex_);
  work_ = std::move(work);
  waited_.clear();
  closed_ = true;
  array_.impl().storage->set_gate(this);
  enter_gate(this, [this] { wait(); });
}

void GatherGate::wait() {
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

void GatherGate::remove() noexcept {
  closed_ = false;
  leave_gate(this);
  array_.impl().storage->set_gate(nullptr);
}

}  // namespace lockstep::parallel
