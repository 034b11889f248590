// What one op costs beside its arithmetic: allocation, checks, dispatch and the tape, with tensors
// so small that the arithmetic does not count. Nanoseconds an op; run it pinned to a core.
// With --device cuda: what the host takes to queue an op, or the device to run its kernels where
// that is longer.

#include <cstdint>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/core/parallel.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/device.hpp"
#include "support/measure.hpp"

namespace {

using namespace lockstep;

constexpr int chain = 256;  // ops in a graph whose backward is timed

/// Prints the cost of `work`, which does `count` ops.
template <class Work>
void run(const benchmark::Report& report, const char* name, Work&& work, int count = 1) {
  const auto timing = benchmark::measure(work);
  report.add({{"case", name},
              {"ns_min", timing.minimum * 1e9 / count},
              {"ns_median", timing.median * 1e9 / count}});
}

void memory(const benchmark::Report& report, Device device) {
  Allocator& pool = device_allocator(device);
  const StreamRef stream = device.is_cpu() ? StreamRef{} : current_stream(device);
  run(report, "pool: allocate + free, 256 B", [&] { pool.deallocate(pool.allocate(256, stream)); });
  run(report, "pool: allocate + free, 64 KiB",
      [&] { pool.deallocate(pool.allocate(65536, stream)); });
  run(report, "pool: allocate + free, 4 MiB",
      [&] { pool.deallocate(pool.allocate(4 << 20, stream)); });
  run(report, "empty [4]", [&] { empty({4}, {.device = device}); });
  run(report, "empty [2, 3, 4, 5]", [&] { empty({2, 3, 4, 5}, {.device = device}); });
}

/// Ops without and with recording.
void forward(const benchmark::Report& report, bool recorded, Device device) {
  const auto of_ones = [device](const Shape& shape) { return ones(shape, {.device = device}); };
  const Tensor a = of_ones({4}).set_requires_grad(recorded), b = of_ones({4});
  const Tensor x = of_ones({4, 4}).set_requires_grad(recorded), w = of_ones({4, 4});
  const Tensor bias = of_ones({4});
  const auto named = [recorded](const char* with, const char* without) {
    return recorded ? with : without;
  };
  run(report, named("add, recorded", "add"), [&] { add(a, b); });
  run(report, named("mul, recorded", "mul"), [&] { mul(a, b); });
  run(report, named("tanh, recorded", "tanh"), [&] { tanh(a); });
  run(report, named("add a row, recorded", "add a row"), [&] { add(x, b); });
  run(report, named("sum, recorded", "sum"), [&] { sum(a); });
  run(report, named("reshape, recorded", "reshape"), [&] { x.reshape({16}); });
  run(report, named("linear 4x4, recorded", "linear 4x4"), [&] { linear(x, w, bias); });
}

/// Forward and backward through a chain of one op, a node each.
template <class Op>
void backward(const benchmark::Report& report, Device device, const char* name, Op&& op) {
  const Tensor x = ones({4}, {.device = device}).set_requires_grad();
  const Tensor seed = ones({4}, {.device = device});
  const auto build = [&] {
    Tensor y = x;
    for (int i = 0; i < chain; ++i) y = op(y);
    return y;
  };
  const auto forward = benchmark::measure([&] { build(); });
  const auto both = benchmark::measure([&] { build().backward(seed); });
  report.add({{"case", name},
              {"ns_forward_min", forward.minimum * 1e9 / chain},
              {"ns_backward_min", (both.minimum - forward.minimum) * 1e9 / chain},
              {"ns_both_median", both.median * 1e9 / chain}});
}

}  // namespace

int main(int argc, char** argv) {
  const benchmark::Report report("op_overhead", argc, argv);
  const Device device = benchmark::chosen_device(argc, argv);
  set_num_threads(1);
  memory(report, device);
  forward(report, false, device);
  forward(report, true, device);
  const Tensor b = ones({4}, {.device = device}), w = ones({4, 4}, {.device = device});
  backward(report, device, "add, a node", [&](const Tensor& y) { return add(y, b); });
  backward(report, device, "mul, a node", [&](const Tensor& y) { return mul(y, b); });
  backward(report, device, "tanh, a node", [](const Tensor& y) { return tanh(y); });
  backward(report, device, "linear 4x4, a node", [&](const Tensor& y) { return linear(y, w); });
}
