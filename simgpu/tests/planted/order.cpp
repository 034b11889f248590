#include <string>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/tensor/factories.hpp"
#include "planted/programs.hpp"
#include "planted/ranks.hpp"
#include "planted/switch.hpp"

/// @file
/// Ranks that do not agree.

namespace planted {
namespace {

using namespace lockstep;

/// Two layers side by side, which each rank calls in another order: their gradients become ready in
/// another order too.
struct SideBySide : nn::Module {
  SideBySide(int rank, TensorOptions tensor)
      : wide(this, "wide", nn::LinearOptions{16, 32, false, tensor}),
        narrow(this, "narrow", nn::LinearOptions{16, 8, false, tensor}),
        is_wide_first(rank == 0) {}

  Tensor forward(const Tensor& x) {
    if (is_wide_first) {
      const Tensor first = wide(x).sum();
      return first + narrow(x).sum();
    }
    const Tensor first = narrow(x).sum();
    return first + wide(x).sum();
  }

  nn::Child<nn::Linear> wide, narrow;
  bool is_wide_first;
};

}  // namespace

// Reducer::rebuild_in_measured_order keeps this rank's own order instead of rank 0's: the trap of
// Flashlight, which takes the order of its buckets from the arrival of hooks.
void collectives_out_of_order() {
  const auto body = [](const CommunicatorPtr& group) {
    const TensorOptions options{.dtype = DType::f32, .device = group->device()};
    DistributedDataParallel replica(nn::make<SideBySide>(group->rank(), options), group,
                                    {.bucket_bytes = 1, .first_bucket_bytes = 1});
    for (int step = 0; step < 2; ++step) replica(ones({4, 16}, options)).backward();
    synchronize(current_stream(group->device()));
  };
  is_planted("collectives-out-of-order") ? run_disagreeing_ranks(body) : run_ranks(2, body);
}

namespace {

// All ranks reduce the losses of their samples, but the last batch of one of them is smaller.
void reduce_losses(const CommunicatorPtr& group, std::int64_t samples) {
  const Tensor losses = ones({samples}, {.dtype = DType::f32, .device = group->device()});
  name_memory(losses.data_ptr(), losses.nbytes(),
              "losses of rank " + std::to_string(group->rank()));
  group->all_reduce({losses.data_ptr(), losses.numel(), losses.dtype()}).wait();
  synchronize(current_stream(group->device()));
}

}  // namespace

void count_mismatch() {
  const bool planted = is_planted("count-mismatch");
  const auto body = [planted](const CommunicatorPtr& group) {
    reduce_losses(group, planted && group->rank() == 1 ? 12 : 16);
  };
  planted ? run_disagreeing_ranks(body) : run_ranks(2, body);
}

}  // namespace planted
