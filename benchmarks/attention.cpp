// Attention of a GPT layer, forward and forward + backward, on every CPU backend and dtype, or with
// --device cuda on the first GPU, through ops (--small: of a size that the simulated one manages).
// GFLOP/s count the products of the causal half only.

#include "arguments/attention.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <string_view>
#include <vector>

#include "backend/backend.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/core/parallel.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/device.hpp"

namespace {

using namespace lockstep;

/// A layer of N x H heads over T positions of D channels.
struct Case {
  std::int64_t n, h, t, d;
};

const Case cases[] = {{8, 4, 256, 64}, {4, 12, 64, 64}, {1, 12, 1024, 64}};

class Heads {
 public:
  Heads(DType dtype, const Case& c)
      : memory_(static_cast<std::size_t>(c.n * c.h * c.t * c.d)),
        view_{memory_.data(), dtype, {c.n, c.h, c.t, c.d}, {c.t * c.h * c.d, c.d, c.h * c.d, 1}} {
    std::mt19937 engine(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::int64_t i = 0; i < view_.numel(); ++i) {
      if (dtype == DType::f32)
        view_.as<float>()[i] = uniform(engine);
      else
        view_.as<BFloat16>()[i] = BFloat16(uniform(engine));
    }
  }
  operator const ArrayView&() const { return view_; }

 private:
  std::vector<float> memory_;
  ArrayView view_;
};

void run(const benchmark::Report& report, const kernels::AttentionKernels& attention,
         std::string_view backend, DType dtype, const Case& c) {
  const Heads q(dtype, c), k(dtype, c), v(dtype, c), out(dtype, c), dout(dtype, c);
  const Heads dq(dtype, c), dk(dtype, c), dv(dtype, c);
  std::vector<float> totals(static_cast<std::size_t>(c.n * c.h * c.t));
  const ArrayView lse{totals.data(), DType::f32, {c.n, c.h, c.t}, {c.h * c.t, c.t, 1}};
  const kernels::AttentionOptions options{.scale = 1 / std::sqrt(static_cast<double>(c.d)),
                                          .causal = true};
  const auto forward = benchmark::measure([&] {
    attention.forward({.out = out, .lse = lse, .q = q, .k = k, .v = v, .options = options},
                      StreamRef{});
  });
  const auto backward = benchmark::measure([&] {
    attention.backward({.dq = dq,
                        .dk = dk,
                        .dv = dv,
                        .dout = dout,
                        .q = q,
                        .k = k,
                        .v = v,
                        .out = out,
                        .lse = lse,
                        .options = options},
                       StreamRef{});
  });
  const double product = static_cast<double>(c.n * c.h * c.t * c.t * c.d);  // 2 x half
  report.add({{"case", "N" + std::to_string(c.n) + " H" + std::to_string(c.h) + " T" +
                           std::to_string(c.t) + " D" + std::to_string(c.d)},
              {"backend", backend},
              {"dtype", name(dtype)},
              {"threads", num_threads()},
              {"forward_ms", forward.minimum * 1e3},
              {"backward_ms", backward.minimum * 1e3},
              {"forward_gflops", 2 * product / forward.minimum * 1e-9},
              {"backward_gflops", 5 * product / backward.minimum * 1e-9}});
}

/// Times of the ops, in bf16: backward is what both together take beyond forward.
void run_on_gpu(const benchmark::Report& report, Device device, const Case& c) {
  const TensorOptions options{.dtype = DType::bf16, .device = device};
  const auto of = [&] { return randn({c.n, c.h, c.t, c.d}, options); };
  const Tensor q = of().set_requires_grad(), k = of().set_requires_grad();
  const Tensor v = of().set_requires_grad(), dout = of();
  const auto attend = [&] { return scaled_dot_product_attention(q, k, v, {.is_causal = true}); };
  const auto forward = benchmark::measure_queued(device, 4, [&] { attend(); });
  const auto both = benchmark::measure_queued(device, 4, [&] { attend().backward(dout); });
  const double backward = both.median - forward.median;
  const double product = static_cast<double>(c.n * c.h * c.t * c.t * c.d);  // 2 x half
  report.add({{"case", "N" + std::to_string(c.n) + " H" + std::to_string(c.h) + " T" +
                           std::to_string(c.t) + " D" + std::to_string(c.d)},
              {"device", "cuda"},
              {"dtype", "bf16"},
              {"forward_ms", forward.median * 1e3},
              {"backward_ms", backward * 1e3},
              {"forward_gflops", 2 * product / forward.median * 1e-9},
              {"backward_gflops", 5 * product / backward * 1e-9}});
}

void run_on_gpu(const benchmark::Report& report, bool small) {
  const Device device = benchmark::first_gpu();
  if (small) return run_on_gpu(report, device, {1, 2, 64, 64});
  for (const Case& c : {Case{8, 12, 1024, 64}, Case{64, 12, 1024, 64}, Case{4, 16, 4096, 128}})
    run_on_gpu(report, device, c);
}

}  // namespace

int main(int argc, char** argv) {
  const benchmark::Report report("attention", argc, argv);
  if (benchmark::asks_for_gpu(argc, argv)) {
    const bool small =
        std::any_of(argv + 1, argv + argc, [](std::string_view word) { return word == "--small"; });
    return benchmark::run_benchmark("attention", [&] { run_on_gpu(report, small); });
  }
  const int threads = num_threads();
  for (const int count : {1, threads}) {
    set_num_threads(count);
    for (const auto& each : backend::cpu_backends()) {
      backend::use_cpu_backend(each);
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const Case& c : cases) run(report, backend::of(cpu).attention, each, dtype, c);
    }
    if (threads == 1) break;
  }
}
