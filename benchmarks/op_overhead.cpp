// What one op costs beside its arithmetic: allocation, checks, dispatch and the tape, with tensors
// so small that the arithmetic does not count. Nanoseconds an op; run it pinned to a core.

#include <cstdint>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/core/parallel.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/measure.hpp"
#include "support/report.hpp"

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

void memory(const benchmark::Report& report) {
  Allocator& pool = device_allocator(cpu);
  run(report, "pool: allocate + free, 256 B", [&] { pool.deallocate(pool.allocate(256, {})); });
  run(report, "pool: allocate + free, 64 KiB", [&] { pool.deallocate(pool.allocate(65536, {})); });
  run(report, "pool: allocate + free, 4 MiB", [&] { pool.deallocate(pool.allocate(4 << 20, {})); });
  run(report, "empty [4]", [] { empty({4}); });
  run(report, "empty [2, 3, 4, 5]", [] { empty({2, 3, 4, 5}); });
}

/// Ops without and with recording.
void forward(const benchmark::Report& report, bool recorded) {
  const Tensor a = ones({4}).set_requires_grad(recorded), b = ones({4});
  const Tensor x = ones({4, 4}).set_requires_grad(recorded), w = ones({4, 4}), bias = ones({4});
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
void backward(const benchmark::Report& report, const char* name, Op&& op) {
  const Tensor x = ones({4}).set_requires_grad(), seed = ones({4});
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
  set_num_threads(1);
  memory(report);
  forward(report, false);
  forward(report, true);
  const Tensor b = ones({4}), w = ones({4, 4});
  backward(report, "add, a node", [&](const Tensor& y) { return add(y, b); });
  backward(report, "mul, a node", [&](const Tensor& y) { return mul(y, b); });
  backward(report, "tanh, a node", [](const Tensor& y) { return tanh(y); });
  backward(report, "linear 4x4, a node", [&](const Tensor& y) { return linear(y, w); });
}
