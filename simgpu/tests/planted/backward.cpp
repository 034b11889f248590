#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/tensor/factories.hpp"
#include "planted/programs.hpp"
#include "planted/ranks.hpp"
#include "planted/streams.hpp"
#include "planted/switch.hpp"

/// @file
/// Patterns of bugs in backward passes that use more than one stream.

namespace planted {
namespace {

using namespace lockstep;

// --- Megatron-LM issue 3670: the hook that checks and scales a gradient runs on a side stream,
// because what it hangs on was made while that stream was current. The reduce-scatter waits for the
// stream of backward only.

void scale_gradient_on(const Stream& side, autograd::LeafNode& leaf) {
  const StreamRef backward = current_stream(side.ref().device);
  order(backward, side);
  {
    const StreamGuard guard(side);
    leaf.gradient().mul_(0.5);
  }
  if (!is_planted("hook-on-side-stream")) order(side, backward);
}

}  // namespace

void hook_on_side_stream() {
  run_ranks(2, [](const CommunicatorPtr& group) {
    const TensorOptions options{.dtype = DType::f32, .device = group->device()};
    const Stream side(group->device());
    const auto layer = nn::make<nn::Linear>(nn::LinearOptions{16, 8, false, options});
    autograd::leaf_of(layer->weight).add_hook([&side](autograd::LeafNode& leaf) {
      scale_gradient_on(side, leaf);
    });
    DistributedDataParallel replica(layer, group);
    replica(ones({4, 16}, options)).sum().backward();
    side.synchronize();
    synchronize(current_stream(group->device()));
  });
}

namespace {

// --- PyTorch pull request 45787: the gradient of the root is made on one stream, and the first ops
// of backward, which run on another, do not wait for it.

void backward_from_side_stream(const Tensor& y) {
  const Stream side(y.device());
  const StreamRef main = current_stream(y.device());
  Tensor root_gradient;
  {
    const StreamGuard guard(side);
    root_gradient = ones(y.shape(), y.options());
    name_memory(root_gradient.data_ptr(), root_gradient.nbytes(), "root gradient");
  }
  if (!is_planted("root-gradient-of-another-stream")) order(side, main);
  y.backward(root_gradient);
  order(main, side);  // before the gradient goes back to the side stream's memory
}

}  // namespace

void root_gradient_of_another_stream() {
  const TensorOptions options{.dtype = DType::f32, .device = cuda(0)};
  const auto layer = nn::make<nn::Linear>(16, 8, options);
  backward_from_side_stream(layer(ones({4, 16}, options)));
  synchronize(current_stream(cuda(0)));
}

}  // namespace planted
