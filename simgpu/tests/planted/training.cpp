#include "planted/training.hpp"

#include "lockstep/runtime/device_runtime.hpp"
#include "planted/programs.hpp"
#include "planted/ranks.hpp"
#include "planted/switch.hpp"
#include "simgpu/simgpu.hpp"

/// @file
/// Programs whose faults sit in copies of lockstep's own files: see planted.cmake.

namespace planted {
namespace {

using namespace lockstep;

// Two steps: with the first the reducer lays its buckets out anew, in the second it is at work.
void train(const CommunicatorPtr& group) {
  Training training(group);
  training.step();
  group->barrier().synchronize();
  hold_back(false);
  training.step();
  synchronize(current_stream(group->device()));
}

void train_with_shards(const CommunicatorPtr& group) {
  Training training(group, {.zero_stage = 1});
  // Where the host happens to ask when a kernel is done already, that kernel is in order.
  for (int step = 0; step < 4; ++step) training.step();
  synchronize(current_stream(group->device()));
}

}  // namespace

// The line of NcclBackend::submit that lets its stream wait for the caller's is missing.
void communication_ignores_backward() {
  hold_back(true);
  run_ranks(2, train);
}

// The line of Reducer::finish_backward that lets the caller's stream wait for the all-reduce is
// missing.
void optimizer_ignores_all_reduce() {
  hold_back(true);
  run_ranks(2, train);
}

// ParameterShards::start_gather runs on a stream that does not wait for the optimizer's.
void gather_ignores_optimizer() { run_ranks(2, train_with_shards); }

// The line of ParameterShards::after_updates that lets the caller's stream wait is missing.
void forward_ignores_gather() { run_ranks(2, train_with_shards); }

// Event's destructor keeps the driver's event, as a class does whose destructor was forgotten.
void event_leak() {
  run_ranks(2, [](const CommunicatorPtr& group) {
    Training training(group);
    training.step();
    synchronize(current_stream(group->device()));
    group->barrier().synchronize();
    if (group->rank() == 0) simgpu::keep_live_objects();  // pools, handles, streams
    group->barrier().synchronize();
    training.step();
    synchronize(current_stream(group->device()));
  });
  device_runtime(DeviceType::cuda).release_cached();  // events that wait for their next user
  simgpu::report_leaks();
}

// Engine::arrive calls a leaf final with its first contribution: the bucket leaves, and the second
// contribution is added to it while it is reduced. lockstep's reducer notices too, and throws.
void bucket_written_twice() {
  const auto body = [](const CommunicatorPtr& group) {
    const TensorOptions options{.dtype = DType::f32, .device = group->device()};
    const auto layer = nn::make<nn::Linear>(nn::LinearOptions{16, 16, false, options});
    DistributedDataParallel replica(nn::make<nn::Sequential>(layer, layer), group);
    const Tensor y = replica(ones({4, 16}, options));
    y.sum().backward();
    synchronize(current_stream(group->device()));
  };
  try {
    run_ranks(2, body);
  } catch (const InvalidArgument&) {
    if (!is_planted("bucket-written-twice")) throw;
  }
}

}  // namespace planted
