// Times of everything that a program runs on a GPU, as the driver's own clock has them: a library
// that CUDA loads into any program, without a change to it (CUPTI's activity records).
//
//     CUDA_INJECTION64_PATH=libkernel_times.so KERNEL_TIMES=FILE program
//
// FILE gets one line of JSON for each kernel, copy and memset, in the order of their beginnings.
// scripts/gpu/kernel_comparison.py compares them with what is predicted for a profile of the
// simulated GPU.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <cupti.h>
#include <cxxabi.h>
#include <nlohmann/json.hpp>

namespace {

using Line = std::pair<std::uint64_t, nlohmann::ordered_json>;  // with its beginning

constexpr std::size_t buffer_bytes = 8 << 20;

/// What has been recorded; written when the process ends.
struct Recording {
  std::mutex mutex;
  std::vector<Line> lines;
};

Recording& recording() {
  static auto* const one = new Recording;  // outlives everything that still flushes into it
  return *one;
}

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : symbol;
}

template <class Activity>
nlohmann::ordered_json line_of(const char* kind, const Activity& activity) {
  return {{"kind", kind},
          {"start_ns", activity.start},
          {"us", static_cast<double>(activity.end - activity.start) * 1e-3},
          {"stream", activity.streamId}};
}

nlohmann::ordered_json kernel_line(const CUpti_ActivityKernel10& kernel) {
  auto line = line_of("kernel", kernel);
  line["name"] = demangled(kernel.name);
  line["grid"] = {kernel.gridX, kernel.gridY, kernel.gridZ};
  line["block"] = {kernel.blockX, kernel.blockY, kernel.blockZ};
  line["registers"] = kernel.registersPerThread;
  line["shared"] = kernel.staticSharedMemory + kernel.dynamicSharedMemory;
  line["local_per_thread"] = kernel.localMemoryPerThread;
  return line;
}

/// CUPTI's numbers of directions, in the words of profiles.
const char* direction(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "h2d";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "d2h";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "d2d";
    default: return "other";
  }
}

void add(const CUpti_Activity& activity) {
  nlohmann::ordered_json line;
  if (activity.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    line = kernel_line(reinterpret_cast<const CUpti_ActivityKernel10&>(activity));
  } else if (activity.kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy6&>(activity);
    line = line_of("copy", copy);
    line["direction"] = direction(copy.copyKind);
    line["bytes"] = copy.bytes;
  } else if (activity.kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto& memset = reinterpret_cast<const CUpti_ActivityMemset4&>(activity);
    line = line_of("memset", memset);
    line["bytes"] = memset.bytes;
  } else {
    return;
  }
  const std::uint64_t start = line["start_ns"];
  recording().lines.emplace_back(start, std::move(line));
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, buffer_bytes));
  *size = *buffer ? buffer_bytes : 0;
  *max_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t used) {
  const std::lock_guard lock(recording().mutex);
  CUpti_Activity* activity = nullptr;
  while (cuptiActivityGetNextRecord(buffer, used, &activity) == CUPTI_SUCCESS) add(*activity);
  std::free(buffer);
}

void write_file() {
  static_cast<void>(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
  const char* path = std::getenv("KERNEL_TIMES");
  std::ofstream file(path && *path ? path : "kernel_times.jsonl");
  const std::lock_guard lock(recording().mutex);
  std::ranges::sort(recording().lines, {}, &Line::first);
  for (const Line& line : recording().lines) file << line.second.dump() << '\n';
}

}  // namespace

/// The driver calls this when the program first needs it. @return 0 and a message if CUPTI refuses.
extern "C" int InitializeInjection() {
  for (const auto status : {cuptiActivityRegisterCallbacks(give_buffer, take_buffer),
                            cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL),
                            cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY),
                            cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET)})
    if (status != CUPTI_SUCCESS) {
      const char* words = nullptr;
      static_cast<void>(cuptiGetResultString(status, &words));
      std::fprintf(stderr, "kernel_times: CUPTI refuses: %s\n", words ? words : "unknown");
      return 0;
    }
  std::atexit(write_file);
  return 1;
}
