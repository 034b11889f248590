// Single ops as programs call them, forward and backward, on the CPU with --threads N. With --serve
// it measures the op that each line on standard input names (benchmarks/peers/compare.py ops).

#include <cstdlib>
#include <cstring>

#include "support/measure.hpp"
#include "support/op_cases.hpp"
#include "support/report.hpp"
#include "support/serve.hpp"

namespace {

using namespace lockstep;
using benchmark::OpCase;

/// One call, with its gradients if it has leaves.
void run(const OpCase& each, const Tensor& seed) {
  if (each.leaves.empty()) {
    const NoGradGuard no_recording;
    each.call();
    return;
  }
  for (Tensor leaf : each.leaves) leaf.set_grad({});
  each.call().backward(seed);
}

/// The least time of a call, and a sum by which another program can tell that it did the same.
nlohmann::ordered_json timing_of(const OpCase& each) {
  Tensor seed;
  double checksum = 0;
  {
    const NoGradGuard no_recording;
    const Tensor result = each.call();
    seed = ones_like(result);
    checksum = result.to(DType::f64).abs().mean().item();
  }
  run(each, seed);
  for (const Tensor& leaf : each.leaves) checksum += leaf.grad().to(DType::f64).abs().mean().item();
  const auto timing = benchmark::measure([&] { run(each, seed); }, {.seconds = 0.15});
  return {{"seconds", timing.minimum}, {"median", timing.median}, {"checksum", checksum}};
}

}  // namespace

int main(int argc, char** argv) {
  bool serves = false;
  for (int i = 1; i < argc; ++i) {
    serves |= std::strcmp(argv[i], "--serve") == 0;
    if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
      set_num_threads(std::atoi(argv[++i]));
  }
  const auto cases = benchmark::op_cases();
  if (serves) {
    benchmark::serve_requests([&](const std::string& name) -> nlohmann::json {
      if (name != "names") return timing_of(cases.at(name)());
      nlohmann::json names;
      for (const auto& [each, make] : cases) names.push_back(each);
      return names;
    });
    return 0;
  }
  const benchmark::Report report("ops", argc, argv);
  for (const auto& [name, make] : cases) {
    const auto timing = timing_of(make());
    report.add({{"case", name},
                {"threads", num_threads()},
                {"ms_min", timing["seconds"].get<double>() * 1e3},
                {"ms_median", timing["median"].get<double>() * 1e3}});
  }
}
