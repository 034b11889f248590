#include <cstdlib>
#include <span>
#include <vector>

#include "checkpoint/later_copies.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "planted/programs.hpp"

/// @file
/// Weights that change while a checkpoint is copied: see planted.cmake.

namespace planted {

using namespace lockstep;

// wait_for_reads, by which the optimizer waits for the copy of a parameter, lets it go on at once.
void optimizer_ignores_save() {
  // One thread copies, and another trains: what the one has waited for the other need not know.
  ::setenv("LOCKSTEP_SIM_HOST_THREADS", "apart", 1);
  const TensorOptions options{.dtype = DType::f32, .device = cuda(0)};
  const auto net = nn::make<nn::Linear>(nn::LinearOptions{64, 64, false, options});
  optim::SGD optimizer(net->named_parameters(), {.lr = 0.1});
  const Tensor weight = Tensor(net->weight).detach();
  std::vector<std::byte> to(weight.nbytes());
  net(ones({4, 64}, options)).sum().backward();
  checkpoint::Throttle throttle;
  checkpoint::LaterCopies copies;
  copies.add(weight, 0, to);
  copies.start(throttle);
  optimizer.step();
  copies.finish();
  synchronize(current_stream(options.device));
}

}  // namespace planted
