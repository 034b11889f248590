#include "tensor/write_note.hpp"

#include "runtime/step_recording.hpp"
#include "tensor/background_reads.hpp"

namespace lockstep {

void note_write(const Tensor& tensor) {
  const IntrusivePtr<Storage>& storage = tensor.impl().storage;
  wait_for_reads(*storage);
  storage->bump_version();
  StepRecording* const recording = StepRecording::on(storage->device());
  // A leaf says itself what becomes of its gradient, which may go with each step.
  if (recording && !storage->holds_gradient()) [[unlikely]]
    recording->note_write(storage->data(), storage);
}

}  // namespace lockstep
