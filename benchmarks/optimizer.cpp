// What reads and writes every parameter once a step: optimizers, norms, clipping. The ceiling is
// the bandwidth of a copy of as much memory, in the same run. --device cuda: on the first GPU.

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "support/device.hpp"
#include "support/measure.hpp"

namespace {

using namespace lockstep;

/// Parameters of four layers of GPT-2, 28 million in 48 tensors, with gradients.
std::vector<Tensor> parameters_on(Device device) {
  std::vector<Tensor> parameters;
  for (int layer = 0; layer < 4; ++layer)
    for (const Shape& shape :
         {Shape{2304, 768}, Shape{768, 768}, Shape{3072, 768}, Shape{768, 3072}, Shape{2304},
          Shape{768}, Shape{3072}, Shape{768}, Shape{768}, Shape{768}, Shape{768}, Shape{768}}) {
      parameters.push_back(randn(shape).to(device).set_requires_grad());
      parameters.back().set_grad(randn(shape).to(device));
    }
  return parameters;
}

double elements_of(const std::vector<Tensor>& parameters) {
  double elements = 0;
  for (const Tensor& parameter : parameters) elements += static_cast<double>(parameter.numel());
  return elements;
}

double seconds_of(Device device, const std::function<void()>& work) {
  return benchmark::measure([&] {
           work();
           synchronize(current_stream(device));
         })
      .minimum;
}

/// Bytes a second that a copy reads and writes: the library's, or on the CPU the C library's.
double copy_rate(Device device, std::int64_t elements) {
  const Tensor from = ones({elements}, {.device = device});
  Tensor to = zeros({elements}, {.device = device});
  double seconds = seconds_of(device, [&] { to.copy_(from); });
  if (device.is_cpu())
    seconds = std::min(
        seconds, seconds_of(device, [&] {
          auto* const target = to.data<float>();
          const auto* const source = from.data<float>();
          parallel_for(elements, std::int64_t{1} << 20, [&](std::int64_t begin, std::int64_t end) {
            std::memcpy(target + begin, source + begin, static_cast<std::size_t>(end - begin) * 4);
          });
        }));
  return 8.0 * static_cast<double>(elements) / seconds;
}

void run(const benchmark::Report& report, Device device) {
  const std::vector<Tensor> parameters = parameters_on(device);
  const double elements = elements_of(parameters);
  const double ceiling = copy_rate(device, static_cast<std::int64_t>(elements));
  const auto add = [&](const std::string& name, double bytes_an_element,
                       const std::function<void()>& work) {
    const double seconds = seconds_of(device, work), rate = bytes_an_element * elements / seconds;
    report.add({{"case", name},
                {"device", device.is_cpu() ? "cpu" : "cuda"},
                {"threads", num_threads()},
                {"ms", seconds * 1e3},
                {"gb_per_s", rate * 1e-9},
                {"copy_gb_per_s", ceiling * 1e-9},
                {"of_copy", rate / ceiling}});
  };
  // Bytes that must move: f32 parameter, gradient and states read, all but the gradient written.
  optim::SGD sgd(parameters, {.lr = 1e-6, .momentum = 0.9});
  add("sgd with momentum", 20, [&] { sgd.step(); });
  optim::AdamW adamw(parameters, {.lr = 1e-6});
  add("adamw", 28, [&] { adamw.step(); });
  optim::Lion lion(parameters, {.lr = 1e-6});
  add("lion", 20, [&] { lion.step(); });
  add("norm", 4, [&] { optim::clip_grad_norm_(parameters, 1e30).item(); });
  double limit = 100;
  add("norm, and clipping by it", 12, [&] { optim::clip_grad_norm_(parameters, limit *= 0.999); });
  amp::GradScaler scaler({.enabled = false});
  add("adamw with clipping", 32, [&] {
    scaler.clip_and_step(adamw, 1e-3);
    scaler.update();
  });
}

}  // namespace

int main(int argc, char** argv) {
  const benchmark::Report report("optimizer", argc, argv);
  if (benchmark::asks_for_gpu(argc, argv))
    return benchmark::run_benchmark("optimizer", [&] { run(report, benchmark::first_gpu()); });
  const int threads = num_threads();
  for (const int count : {1, threads}) {
    set_num_threads(count);
    run(report, cpu);
    if (threads == 1) break;
  }
}
