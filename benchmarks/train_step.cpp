// Time of whole training steps: forward, loss, backward, AdamW. Beside each stands the time that
// its matrix products alone would take at the rate of a large product, measured in the same run.
//
//     benchmark_train_step [--json] [--device cuda] [--threads N] [CASE...]
//     benchmark_train_step --serve CASE FILE [--threads N]
//
// The second form writes weights and batch to FILE and then runs a step for every line on standard
// input: benchmarks/peers/compare.py interleaves it with a peer.

#include <cstring>
#include <iostream>

#include "lockstep/core/parallel.hpp"
#include "lockstep/io/safetensors.hpp"
#include "support/device.hpp"
#include "support/measure.hpp"
#include "support/serve.hpp"
#include "support/train_cases.hpp"

namespace {

using namespace lockstep;

/// GFLOP/s of a large f32 or bf16 product.
double product_rate(DType dtype, Device device) {
  const std::int64_t n = device.is_cpu() ? 1024 : 8192;
  const TensorOptions options{.dtype = dtype, .device = device};
  const Tensor a = randn({n, n}, options), b = randn({n, n}, options);
  const auto timing = benchmark::measure_queued(device, 1, [&] { matmul(a, b); });
  return 2e-9 * static_cast<double>(n * n * n) / timing.minimum;
}

void measure_case(const benchmark::Report& report, const std::string& name, Device device) {
  const auto item = benchmark::train_case(name, device);
  const bool tiny = item.gflop < 0.1;
  const auto timing = benchmark::measure(item.step, {.seconds = tiny ? 0.5 : 5.0, .at_least = 8});
  const double rate = product_rate(name.ends_with("f32") ? DType::f32 : DType::bf16, device);
  report.add({{"case", name},
              {"device", device.is_cpu() ? "cpu" : "cuda"},
              {"threads", num_threads()},
              {"ms_min", timing.minimum * 1e3},
              {"ms_median", timing.median * 1e3},
              {"gflop", item.gflop},
              {"product_gflops", rate},
              {"share_of_ceiling", item.gflop / rate / timing.median}});
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<std::string> words;
  bool serving = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
      set_num_threads(std::stoi(argv[++i]));
    else if (std::strcmp(argv[i], "--serve") == 0)
      serving = true;
    else if (std::strcmp(argv[i], "--device") == 0)
      ++i;
    else if (std::strcmp(argv[i], "--json") != 0)
      words.emplace_back(argv[i]);
  }
  if (serving) {
    LOCKSTEP_CHECK(words.size() == 2, InvalidArgument, "--serve needs a case and a file");
    const auto item = benchmark::train_case(words[0]);
    io::save_safetensors(words[1], item.state);
    benchmark::serve(item.step);
    return 0;
  }
  if (words.empty())
    words = {"tiny_f32",      "tiny_captured_f32", "gpt_f32",      "gpt_bf16",
             "gpt_amp",       "gpt2_f32",          "gpt2_amp",     "resnet18_f32",
             "resnet18_bf16", "resnet50_f32",      "resnet50_bf16"};
  const benchmark::Report report("train_step", argc, argv);
  const Device device = benchmark::chosen_device(argc, argv);
  for (const std::string& name : words) measure_case(report, name, device);
  return 0;
} catch (const std::exception& error) {
  std::cerr << "benchmark_train_step: " << error.what() << '\n';
  return 2;
}
