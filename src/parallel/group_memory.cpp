#include "parallel/group_memory.hpp"

#include "lockstep/comm/memory.hpp"
#include "lockstep/tensor/factories.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::parallel {

Tensor zeros_for(Communicator& group, std::int64_t count, TensorOptions options) {
  if (StepRecording::on(options.device)) return zeros({count}, options);
  const auto bytes = static_cast<std::size_t>(count) * size_of(options.dtype);
  const auto memory = comm::allocate_for(group, bytes);
  if (!memory) return zeros({count}, options);
  Tensor array = from_blob(memory->data(), {count}, options, memory);
  array.zero_();
  return array;
}

}  // namespace lockstep::parallel
