#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/op_call.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/train/step_graph.hpp"
#include "planted/graph.hpp"
#include "planted/options.hpp"
#include "planted/programs.hpp"
#include "planted/streams.hpp"
#include "planted/switch.hpp"

/// @file
/// Steps that are captured once and replayed.

namespace planted {
namespace {

using namespace lockstep;

/// Values, and their squares in memory that is there before the capture.
struct Step {
  Tensor x = ones({256}, f32), squares;
  void prepare() { squares = empty({256}, f32); }
  void run() {
    if (!squares.defined()) prepare();  // an allocation while the stream captures
    squares.copy_(x);
    squares.mul_(x);
  }
};

}  // namespace

void allocation_during_capture() {
  const bool planted = is_planted("allocation-during-capture");
  Step step;
  synchronize(current_stream(cuda(0)));
  const Stream stream(cuda(0));  // for which the pool has no memory yet
  const StreamGuard guard(stream);
  if (!planted) step.prepare();
  try {
    const Graph graph(stream, [&] { step.run(); });
    for (int replay = 0; replay < 3; ++replay) graph.replay();
    stream.synchronize();
  } catch (const CudaError&) {
    if (!planted) throw;
  }
}

namespace {

// --- The gradient of a leaf lies in memory that is there before, as in a bucket. The step was
// captured when there was no gradient: its launches overwrite. LeafNode makes it a condition of
// launches that there is none; the planted fault leaves the condition out.

struct StaticGradient final : autograd::GradientSink {
  Tensor memory = empty({64}, f32);
  Tensor memory_for(std::size_t) override { return memory; }
  void on_final(std::size_t) override {}
  void on_taken(std::size_t) noexcept override {}
};

void accumulate_twice(StepGraph& step, const Tensor& x) {
  step({x});
  step({x});
}

}  // namespace

void stale_static_gradient() {
  StaticGradient sink;
  name_memory(sink.memory.data_ptr(), sink.memory.nbytes(), "static gradient of weight");
  Tensor weight = ones({64}, f32);
  const Tensor x = ones({64}, f32);
  weight.set_requires_grad();
  autograd::leaf_of(weight).set_sink(sink, 0);
  {
    StepGraph step(
        [&](std::span<const Tensor> in) {
          (in[0] * weight).sum().backward();
          return std::vector<Tensor>();
        },
        {.num_warmup_iters = 1});
    for (int i = 0; i < 2; ++i) {
      step({x});
      weight.set_grad({});
    }
    accumulate_twice(step, x);
    const auto gradient = weight.grad().to_vector<float>();
    weight.set_grad({});
  }
  autograd::leaf_of(weight).release_sink(sink);
}

// --- A graph reads a tensor of the program's, which the program replaces by another. A StepGraph
// holds what its ops read, and asks before a launch whether anybody else does; whoever captures a
// stream by hand has to see to that.

void block_freed_while_graph_lives() {
  const Stream stream(cuda(0));
  const StreamGuard guard(stream);
  Tensor mask = ones({64}, f32);
  name_memory(mask.data_ptr(), mask.nbytes(), "mask");
  const Tensor x = ones({64}, f32), masked = empty({64}, f32);
  stream.synchronize();
  const Graph graph(stream, [&] {
    Tensor(masked).copy_(x);
    Tensor(masked).mul_(mask);
  });
  graph.replay();
  stream.synchronize();
  if (is_planted("block-freed-while-graph-lives")) mask = Tensor();
  graph.replay();
  stream.synchronize();
}

namespace {

// --- PyTorch issue 181723: the backward of a graphed callable writes the gradients of parameters
// into static memory of its graph and gives that memory away. Where a parameter has no gradient
// yet, the accumulation takes it as it is instead of a copy: the next replay overwrites the
// gradient of the micro-batch before, and is then added to itself.
//
// LeafNode::accumulate of lockstep copies whatever somebody else can see; the planted fault makes
// it take everything.

struct GraphedLayer {
  Tensor x = ones({4, 16}, f32), dy = ones({4, 8}, f32);
  Tensor transposed = empty({8, 4}, f32), static_gradient = empty({8, 16}, f32);
  Graph backward;

  explicit GraphedLayer(StreamRef stream)
      : backward(stream, [this] {
          static_gradient.copy_(x.slice(0, 0, 1).expand({8, 16}));
        }) {
    name_memory(static_gradient.data_ptr(), static_gradient.nbytes(), "static gradient");
  }

  Tensor forward(const Tensor& weight) const {
    static constexpr OpDescriptor op{.name = "graphed layer"};
    const autograd::OpCall call(op, weight);
    return call.record(matmul(x, weight.detach().transpose(0, 1)),
                       [this](const Tensor&, autograd::InputGradients& inputs) {
                         backward.replay();
                         inputs.set(0, static_gradient);
                       });
  }
};

}  // namespace

void replayed_gradient_accumulated() {
  const Stream stream(cuda(0));
  const StreamGuard guard(stream);
  const GraphedLayer layer(stream);
  Tensor weight = ones({8, 16}, f32);
  weight.set_requires_grad();
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
    layer.forward(weight).backward(layer.dy);
  const auto gradient = weight.grad().to_vector<float>();
  stream.synchronize();
}

namespace {

// A factor that the host sets before each replay.
[[gnu::noinline]] void copy_factor(const Tensor& to, StreamRef stream, float* lasting) {
  float own = 2.0f;
  device_runtime(DeviceType::cuda)
      .copy(to.data_ptr(), lasting ? lasting : &own, sizeof own, stream);
}

}  // namespace

void captured_copy_of_dead_variable() {
  const Tensor factor = empty({1}, f32);
  float lasting = 2.0f;
  const Stream stream(cuda(0));
  order(current_stream(cuda(0)), stream);
  const Graph graph(stream, [&] {
    copy_factor(factor, stream, is_planted("captured-copy-of-dead-variable") ? nullptr : &lasting);
  });
  graph.replay();
  stream.synchronize();
}

}  // namespace planted
