// What this machine's first GPU can do at most, beside which all other figures stand: copies within
// its memory, over the link to the host, large products, and what the host pays for a launch.
//
//     benchmark_ceilings [--json] [--small]
//
// --small takes sizes that the simulated GPU manages. Data are random: products of zeros run
// faster.

#include <cstdint>
#include <string>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/device.hpp"

namespace {

using namespace lockstep;

/// Bytes a second within the device's memory, read and written ones together.
void copies(const benchmark::Report& report, Device device, std::int64_t elements) {
  const Tensor from = rand({elements}, {.device = device});
  Tensor to = zeros({elements}, {.device = device});
  const auto timing = benchmark::measure_queued(device, 10, [&] { to.copy_(from); });
  const double bytes = 8.0 * static_cast<double>(elements);
  report.add({{"case", "copy"}, {"bytes", bytes}, {"gb_per_s", bytes / timing.median * 1e-9}});
}

/// Bytes a second between the host's memory, pinned or not, and the device's.
void links(const benchmark::Report& report, Device device, std::int64_t elements) {
  Tensor there = zeros({elements}, {.device = device});
  const double bytes = 4.0 * static_cast<double>(elements);
  for (const bool pinned : {false, true}) {
    Tensor here = rand({elements});
    if (pinned) here = here.pin_memory();
    const auto add = [&](const char* direction, const std::function<void()>& copy) {
      const auto timing = benchmark::measure_queued(device, 1, copy);
      report.add({{"case", std::string(direction) + (pinned ? ", pinned" : "")},
                  {"bytes", bytes},
                  {"gb_per_s", bytes / timing.median * 1e-9}});
    };
    add("host to device", [&] { there.copy_(here); });
    add("device to host", [&] { here.copy_(there); });
  }
}

void products(const benchmark::Report& report, Device device, std::int64_t size) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    const std::int64_t n = dtype == DType::f32 ? size / 2 : size;
    const TensorOptions options{.dtype = dtype, .device = device};
    const Tensor a = randn({n, n}, options), b = randn({n, n}, options);
    const auto timing = benchmark::measure_queued(device, 10, [&] { matmul(a, b); });
    const double work = 2.0 * static_cast<double>(n) * static_cast<double>(n * n);
    report.add({{"case", "product"},
                {"dtype", name(dtype)},
                {"size", n},
                {"ms", timing.median * 1e3},
                {"tflops", work / timing.median * 1e-12}});
  }
}

/// Microseconds an op whose kernel is done before the next is asked for: what the host pays.
void launches(const benchmark::Report& report, Device device, int count) {
  const Tensor a = rand({4}).to(device), b = rand({4}).to(device);
  const auto queued = benchmark::measure_queued(device, count, [&] { add(a, b); });
  const auto alone = benchmark::measure_queued(device, 1, [&] { add(a, b); });
  report.add({{"case", "launch"},
              {"us_queued", queued.median * 1e6},
              {"us_with_wait", alone.median * 1e6}});
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::benchmark::run_benchmark("ceilings", [&] {
    const benchmark::Report report("ceilings", argc, argv);
    bool small = false;
    for (int i = 1; i < argc; ++i) small |= std::strcmp(argv[i], "--small") == 0;
    const Device device = benchmark::first_gpu();
    const std::int64_t elements = std::int64_t{1} << (small ? 16 : 28);
    copies(report, device, elements);
    links(report, device, elements / 4);
    products(report, device, small ? 64 : 8192);
    launches(report, device, small ? 20 : 500);
  });
}
