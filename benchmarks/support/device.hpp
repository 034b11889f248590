#pragma once

#include <cstring>
#include <functional>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/runtime/info.hpp"
#include "lockstep/runtime/stream.hpp"
#include "support/measure.hpp"
#include "support/report.hpp"

/// @file
/// Where a benchmark runs: on the CPU, or with --device cuda on the first GPU.

namespace lockstep::benchmark {

/// Whether the command line has `--device cuda`.
inline bool asks_for_gpu(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], "--device") == 0) return std::strncmp(argv[i + 1], "cuda", 4) == 0;
  return false;
}

/// @throws Unsupported where there is none.
inline Device first_gpu() {
  LOCKSTEP_CHECK(cuda_device_count() > 0, Unsupported, "no CUDA device on this machine");
  return cuda(0);
}

/// The device that the command line names. @throws Unsupported for a GPU where there is none.
inline Device chosen_device(int argc, char** argv) {
  return asks_for_gpu(argc, argv) ? first_gpu() : cpu;
}

/// True where --device cuda is asked of a benchmark that has no case on a GPU: says so by one case.
inline bool has_no_gpu_case(const Report& report, int argc, char** argv, const char* instead) {
  if (!asks_for_gpu(argc, argv)) return false;
  report.add({{"device", "cuda"}, {"skipped", std::string("no case on a GPU: ") + instead}});
  return true;
}

/// Times work that is queued on a device: `count` times, then a wait for its current stream. The
/// times are those of one, so the wait counts little.
inline Timing measure_queued(Device device, int count, const std::function<void()>& work) {
  Timing timing = measure([&] {
    for (int i = 0; i < count; ++i) work();
    synchronize(current_stream(device));
  });
  timing.minimum /= count;
  timing.median /= count;
  return timing;
}

/// Runs a benchmark's body; an error becomes a line and code 2.
inline int run_benchmark(const char* name, const std::function<void()>& body) try {
  body();
  return 0;
} catch (const std::exception& error) {
  std::cerr << "benchmark_" << name << ": " << error.what() << '\n';
  return 2;
}

}  // namespace lockstep::benchmark
