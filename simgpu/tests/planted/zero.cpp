#include <optional>

#include "planted/programs.hpp"
#include "planted/ranks.hpp"
#include "planted/streams.hpp"
#include "planted/training.hpp"

/// @file
/// Shards and buckets that are on their way when their memory is written, freed or used again: see
/// planted.cmake.

namespace planted {
namespace {

using namespace lockstep;

/// A model that an evaluation leaves after the first layer.
struct WithExit : nn::Module {
  explicit WithExit(TensorOptions tensor)
      : first(this, "first", nn::LinearOptions{16, 16, false, tensor}),
        second(this, "second", nn::LinearOptions{16, 16, false, tensor}) {}

  Tensor forward(const Tensor& x) {
    const Tensor y = first(x);
    return leaves_early ? y : second(y);
  }

  nn::Child<nn::Linear> first, second;
  bool leaves_early = false;
};

void train_in_stage(const CommunicatorPtr& group, int stage) {
  Training training(group, {.zero_stage = stage});
  for (int step = 0; step < 2; ++step) training.step();
  synchronize(current_stream(group->device()));
}

}  // namespace

// GatheredParameters::drop does not wait for a gather that nobody has used, and the optimizer
// writes the shard that it sends: that of the second layer, which came next the last time.
void shard_written_while_sent() {
  run_ranks(2, [](const CommunicatorPtr& group) {
    const TensorOptions options{.dtype = DType::f32, .device = group->device()};
    const auto net = nn::make<WithExit>(options);
    DistributedDataParallel replica(net, group,
                                    {.bucket_bytes = 1, .first_bucket_bytes = 1, .zero_stage = 3});
    optim::SGD optimizer(replica.parameters(), {.lr = 0.1});
    const Tensor x = ones({4, 16}, options);
    for (int step = 0; step < 2; ++step) {
      net->leaves_early = false;
      replica(x).sum().backward();
      {
        const NoGradGuard no_recording;
        net->leaves_early = true;
        replica(x);
      }
      optimizer.step();
      optimizer.zero_grad();
    }
    synchronize(current_stream(group->device()));
  });
}

// The line of GatheredParameters::wait_and_point that lets the caller's stream wait is missing:
// the layer computes with what the memory held before.
void weight_used_before_gathered() {
  run_ranks(2, [](const CommunicatorPtr& group) { train_in_stage(group, 3); });
}

// Reducer::go_on_early frees a bucket before its reduce-scatter is done, and TensorWork does not
// keep the memory of one that nobody has waited for.
void bucket_freed_while_reduced() {
  run_ranks(2, [](const CommunicatorPtr& group) { train_in_stage(group, 2); });
}

// Reducer::build lays buckets out anew, and the former ones go, which NCCL still knows.
void registered_bucket_replaced() {
  run_ranks(2, [](const CommunicatorPtr& group) {
    Training training(group, {.register_buckets = true});
    training.step();
    synchronize(current_stream(group->device()));
  });
}

// Storage::record_stream forgets the stream. Buckets that the reducer lays out anew go back to the
// stream that they were made on, which does not know that another one copies gradients out of them.
void replaced_bucket_freed() {
  run_ranks(2, [](const CommunicatorPtr& group) {
    const TensorOptions options{.dtype = DType::f32, .device = group->device()};
    const Stream setup(group->device());
    std::optional<Training> training;
    {
      const StreamGuard guard(setup);
      training.emplace(group);
    }
    order(setup, current_stream(group->device()));
    {
      // It has enough to do to be late: else the memory would be gone before it is read.
      const StreamGuard guard(setup);
      Tensor count = zeros({1}, options);
      for (int i = 0; i < 400; ++i) count.add_(1.0);
    }
    training->step();
    synchronize(current_stream(group->device()));
    setup.synchronize();
  });
}

}  // namespace planted
