#include <latch>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/tensor/factories.hpp"
#include "memory/upstream.hpp"
#include "planted/programs.hpp"
#include "planted/ranks.hpp"
#include "planted/streams.hpp"
#include "planted/switch.hpp"

/// @file
/// Patterns of bugs in sharded training: gradients on their way through a reduce-scatter.

namespace planted {
namespace {

using namespace lockstep;

constexpr std::int64_t shard_size = 64;

TensorOptions f32_of(const CommunicatorPtr& group) {
  return {.dtype = DType::f32, .device = group->device()};
}

Tensor named(Tensor tensor, const std::string& name) {
  name_memory(tensor.data_ptr(), tensor.nbytes(), name);
  return tensor;
}

comm::Work reduce_scatter(const CommunicatorPtr& group, const Tensor& input, const Tensor& shard) {
  return group->reduce_scatter({input.data_ptr(), input.numel(), input.dtype()},
                               {shard.data_ptr(), shard.numel(), shard.dtype()},
                               comm::ReduceOp::average());
}

// --- PyTorch pull request 180665: with hybrid sharding and offload to the CPU, the output of the
// reduce-scatter is allocated on the stream of the reduce-scatters, but the copy that offloads the
// gradient runs on the stream of the all-reduces. The function drops the output as it returns; the
// next reduce-scatter gets its memory while the copy still reads it. The fix keeps the output until
// the stream of the reduce-scatters has waited for the copy.

struct Offload {
  Stream reduce_scatter_stream, all_reduce_stream;
  Tensor kept;  ///< output of the layer before

  explicit Offload(Device device) : reduce_scatter_stream(device), all_reduce_stream(device) {}

  void foreach_reduce(const CommunicatorPtr& group, int layer, const Tensor& gradient, void* host) {
    order(current_stream(group->device()), reduce_scatter_stream);
    const StreamGuard guard(reduce_scatter_stream);
    const Tensor reduce_output = named(empty({shard_size}, f32_of(group)),
                                       "reduce_output of layer " + std::to_string(layer));
    reduce_scatter(group, gradient, reduce_output).wait();
    order(reduce_scatter_stream, all_reduce_stream);
    device_runtime(DeviceType::cuda)
        .copy(host, reduce_output.data_ptr(), reduce_output.nbytes(), all_reduce_stream);
    if (is_planted("reduced-buffer-freed")) return;
    if (layer > 0) order(all_reduce_stream, reduce_scatter_stream);  // before `kept` goes
    kept = reduce_output;
  }

  void finish() {
    order(all_reduce_stream, reduce_scatter_stream);
    kept = Tensor();
    reduce_scatter_stream.synchronize();
  }
};

}  // namespace

void reduced_buffer_freed() {
  run_ranks(2, [](const CommunicatorPtr& group) {
    PinnedUpstream pinned;
    constexpr std::size_t bytes = shard_size * sizeof(float);
    auto* const host = static_cast<std::byte*>(pinned.allocate(3 * bytes));
    const Tensor gradient = ones({2 * shard_size}, f32_of(group));
    Offload offload(group->device());
    for (int layer = 0; layer < 3; ++layer)
      offload.foreach_reduce(group, layer, gradient,
                             host + bytes * static_cast<std::size_t>(layer));
    offload.finish();
    offload.all_reduce_stream.synchronize();
    pinned.deallocate(host, 3 * bytes);
  });
}

namespace {

// --- Megatron-LM pull request 6187: the accumulated gradient is allocated while the current stream
// is still the default one, but used, and replaced during backward, on the stream of the
// reduce-scatters. The pool may give the old memory to work of the default stream before the
// reduce-scatter is done. The fix allocates it on the stream of the reduce-scatters.

struct ParameterGroup {
  Stream reduce_scatter_stream;
  Tensor main_grad;

  explicit ParameterGroup(const CommunicatorPtr& group) : reduce_scatter_stream(group->device()) {
    const StreamGuard guard(is_planted("gradient-of-another-stream")
                                ? current_stream(group->device())
                                : reduce_scatter_stream.ref());
    main_grad = named(zeros({shard_size}, f32_of(group)), "main_grad");
  }

  void reduce_partial_gradients(const CommunicatorPtr& group, const Tensor& partial) {
    order(current_stream(group->device()), reduce_scatter_stream);
    const StreamGuard guard(reduce_scatter_stream);
    const Tensor reduced = empty({shard_size}, f32_of(group));
    reduce_scatter(group, partial, reduced).wait();
    main_grad = main_grad + reduced;  // another placement: other memory
  }
};

}  // namespace

void gradient_of_another_stream() {
  run_ranks(2, [](const CommunicatorPtr& group) {
    ParameterGroup parameters(group);
    const Tensor partial = ones({2 * shard_size}, f32_of(group));
    std::latch given_out(1);  // of the old memory, before the sum that reads it
    hold(parameters.reduce_scatter_stream, given_out);
    parameters.reduce_partial_gradients(group, partial);
    const Tensor activation = ones({shard_size}, f32_of(group));
    given_out.count_down();
    order(parameters.reduce_scatter_stream, current_stream(group->device()));
    synchronize(current_stream(group->device()));
  });
}

namespace {

// --- Megatron-LM pull request 5222: layers share buffers for their full gradients. The next
// layer's weight gradient is written into one whose reduce-scatter still reads it. The fix waits
// for a reduce-scatter before its buffer is given to the next layer.

struct SharedBuffer {
  Tensor full, shards;
  comm::Work in_flight;

  void reduce_layer(const CommunicatorPtr& group, int layer, const Tensor& x, const Tensor& dy) {
    if (!is_planted("shared-gradient-buffer")) in_flight.wait();
    write_weight_gradient(x, dy);
    in_flight = reduce_scatter(group, full, shards.select(0, layer));
  }

  void write_weight_gradient(const Tensor& x, const Tensor& dy) const {
    Tensor(full).copy_(matmul(dy.transpose(0, 1), x).reshape({2 * shard_size}));
  }
};

}  // namespace

void shared_gradient_buffer() {
  run_ranks(2, [](const CommunicatorPtr& group) {
    const Tensor x = ones({4, 16}, f32_of(group)), dy = ones({4, 8}, f32_of(group));
    SharedBuffer buffer{.full = named(empty({2 * shard_size}, f32_of(group)), "shared buffer"),
                        .shards = empty({3, shard_size}, f32_of(group)),
                        .in_flight = {}};
    for (int layer = 0; layer < 3; ++layer) buffer.reduce_layer(group, layer, x, dy);
    buffer.in_flight.wait();
    synchronize(current_stream(group->device()));
  });
}

}  // namespace planted
