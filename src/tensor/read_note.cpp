#include "tensor/read_note.hpp"

#include "memory/step_rehearsal.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep {

void note_read(const Tensor& tensor, std::string_view reader) {
  if (!tensor.defined()) return;
  Storage* const owner = tensor.impl().storage->owner();
  if (!owner) return;  // memory of somebody else
  const IntrusivePtr<RefCounted> array(owner);
  if (StepRehearsal* const rehearsal = StepRehearsal::current())
    rehearsal->note_read(array, reader, tensor.shape());
  if (StepRecording* const recording = StepRecording::on(owner->device()))
    recording->note_read(owner->data(), array, reader, tensor.shape());
}

}  // namespace lockstep
