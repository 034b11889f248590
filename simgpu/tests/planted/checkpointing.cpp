#include <chrono>
#include <cstdlib>
#include <latch>
#include <span>
#include <thread>
#include <vector>

#include "checkpoint/later_copies.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "planted/programs.hpp"
#include "planted/streams.hpp"

/// @file
/// Weights that change while a checkpoint is copied: see planted.cmake.

namespace planted {

using namespace lockstep;

namespace {

// wait_for_reads, by which the optimizer waits for the copy of a parameter, lets it go on at once.
void train_beside(checkpoint::LaterCopies& copies, bool on_another_stream) {
  // One thread copies, and another trains: what the one has waited for the other need not know.
  ::setenv("LOCKSTEP_SIM_HOST_THREADS", "apart", 1);
  const TensorOptions options{.dtype = DType::f32, .device = cuda(0)};
  const auto net = nn::make<nn::Linear>(nn::LinearOptions{64, 64, false, options});
  optim::SGD optimizer(net->named_parameters(), {.lr = 0.1});
  const Tensor weight = Tensor(net->weight).detach();
  std::vector<std::byte> to(weight.nbytes());
  net(ones({4, 64}, options)).sum().backward();
  const StreamRef current = current_stream(options.device);
  const Stream other(options.device);
  order(current, other);
  // No copy is made before the optimizer comes to the weight.
  std::latch may_copy(1);
  hold(current, may_copy);
  checkpoint::Throttle throttle;
  copies.add(weight, 0, to);
  copies.start(throttle);
  std::jthread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    may_copy.count_down();
  });
  {
    const StreamGuard guard(on_another_stream ? other.ref() : current);
    optimizer.step();
  }
  copies.finish();
  synchronize(other);
  synchronize(current);
}

}  // namespace

void optimizer_ignores_save() {
  checkpoint::LaterCopies copies(0);  // of which none are made within the GPU
  train_beside(copies, false);
}

void other_stream_ignores_save() {
  checkpoint::LaterCopies copies;
  train_beside(copies, true);
}

}  // namespace planted
