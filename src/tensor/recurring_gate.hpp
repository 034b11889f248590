#pragma once

#include <vector>

#include "lockstep/core/device.hpp"
#include "lockstep/core/intrusive_ptr.hpp"
#include "lockstep/tensor/memory_gate.hpp"

/// @file
/// Gates that captured steps pass, which ask for the memory of tensors once and then never again.

namespace lockstep {

class StepRecording;

/// A gate that closes again and again before one array. While any thread captures, it stands there
/// open or closed, so that steps learn which ones they pass: their launches wait for these,
/// whichever thread has closed them.
class RecurringGate : public RefCounted, public MemoryGate {
 public:
  void open(TensorImpl& tensor) final;
  /// Returns once the array may be used, as `open` does. From any thread.
  virtual void wait() = 0;
  /// Puts the gate before its array, or takes it away, as it is closed and as captures want it.
  virtual void stand() noexcept = 0;

 protected:
  explicit RecurringGate(Device device) : device_(device) {}
  ~RecurringGate() override = default;

  /// From now on captures know of it; once it is made, for others call it at once.
  void begin();
  /// They know of it no more.
  void end() noexcept;
  /// The calling thread has closed it; or it is open.
  void note_closed();
  void note_open() noexcept;

 private:
  const Device device_;
};

/// The gates that a captured step passes; see StepRecording::part.
class PassedGates {
 public:
  explicit PassedGates(StepRecording&) {}
  void add(RecurringGate& gate);
  void wait() const;

 private:
  std::vector<IntrusivePtr<RecurringGate>> gates_;
};

/// A capture was announced (StepRecording::Opening), or its end: gates come to stand, or go.
void stand_for_captures();
/// Waits at the gates that the calling thread has closed, which a capture cannot.
void wait_at_gates();

}  // namespace lockstep
