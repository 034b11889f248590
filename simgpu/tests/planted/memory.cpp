#include <cstring>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/tensor/factories.hpp"
#include "memory/upstream.hpp"
#include "planted/options.hpp"
#include "planted/programs.hpp"
#include "planted/streams.hpp"
#include "planted/switch.hpp"

/// @file
/// Memory that is used too early, too late, or before it holds anything.

namespace planted {
namespace {

using namespace lockstep;

const Device gpu = cuda(0);

// A temporary result that a side stream copies; it goes back to the pool at the end.
void copy_on_side_stream(StreamRef side, const Tensor& target) {
  const Tensor activation = ones({1024}, f32) * 2.0;
  name_memory(activation.data_ptr(), activation.nbytes(), "activation");
  order(current_stream(gpu), side);
  const StreamGuard guard(side);
  Tensor(target).copy_(activation);
  if (!is_planted("freed-without-record-stream")) activation.impl().storage->record_stream(side);
}

}  // namespace

void freed_without_record_stream() {
  const Stream side(gpu);
  const Tensor target = zeros({1024}, f32);
  copy_on_side_stream(side, target);
  const Tensor next = ones({1024}, f32);
  side.synchronize();
  synchronize(current_stream(gpu));
}

namespace {

// The mean of gradients over micro-batches, in an accumulator that must begin with zeros.
Tensor mean_of(const std::vector<Tensor>& gradients) {
  Tensor sum = is_planted("uninitialized-read") ? empty({256}, f32) : zeros({256}, f32);
  name_memory(sum.data_ptr(), sum.nbytes(), "sum of gradients");
  for (const Tensor& gradient : gradients) sum.add_(gradient);
  return sum.mul_(1.0 / static_cast<double>(gradients.size()));
}

}  // namespace

void uninitialized_read() {
  mean_of({ones({256}, f32), ones({256}, f32)});
  synchronize(current_stream(gpu));
}

namespace {

// The loss on its way to the log, through pinned memory.
float read_loss(const Tensor& loss, float* pinned, const Stream& side) {
  order(current_stream(gpu), side);
  device_runtime(DeviceType::cuda).copy(pinned, loss.data_ptr(), loss.nbytes(), side);
  if (!is_planted("host-reads-too-early")) side.synchronize();
  return *pinned;
}

}  // namespace

void host_reads_too_early() {
  PinnedUpstream memory;
  auto* const pinned = static_cast<float*>(memory.allocate(sizeof(float)));
  name_memory(pinned, sizeof(float), "loss for the log");
  const Stream side(gpu);
  const Tensor computed = ones({}, f32);
  const float loss = read_loss(computed, pinned, side);
  side.synchronize();
  synchronize(current_stream(gpu));
  memory.deallocate(pinned, sizeof(float));
  LOCKSTEP_CHECK(is_planted("host-reads-too-early") || loss == 1.0F, InvalidArgument, "loss ",
                 loss);
}

namespace {

// A batch on its way to the device, from memory that is freed behind it.
void send_batch(const Tensor& batch, const Stream& side) {
  PinnedUpstream memory;
  void* const pinned = memory.allocate(batch.nbytes());
  std::memset(pinned, 0, batch.nbytes());
  device_runtime(DeviceType::cuda).copy(batch.data_ptr(), pinned, batch.nbytes(), side);
  if (!is_planted("pinned-freed-in-flight")) side.synchronize();
  memory.deallocate(pinned, batch.nbytes());
}

}  // namespace

void pinned_freed_in_flight() {
  const Tensor batch = empty({1024}, f32);
  const Stream side(gpu);
  order(current_stream(gpu), side);
  send_batch(batch, side);
  side.synchronize();
}

}  // namespace planted
