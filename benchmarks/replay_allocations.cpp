// What the library's pools reserve for a recorded trace of allocations, read from the standard
// input: one number a line, a positive one requests so many bytes, -k returns the k-th block.
// scripts/pool_trace.py replay gives it the traces of tests/data/pool.

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <vector>

#include "memory/caching_pool.hpp"
#include "memory/unbacked_upstream.hpp"
#include "support/device.hpp"

namespace {

using namespace lockstep;

void replay(const std::vector<std::int64_t>& trace, MemoryPool& pool, const char* name,
            const benchmark::Report& report) {
  std::vector<MemoryBlock*> blocks;
  std::vector<std::int64_t> sizes;
  std::int64_t asked = 0, peak = 0;
  for (const std::int64_t event : trace) {
    if (event > 0) {
      blocks.push_back(pool.allocate(static_cast<std::size_t>(event), {}));
      sizes.push_back(event);
      peak = std::max(peak, asked += event);
    } else {
      const auto which = static_cast<std::size_t>(-event - 1);
      pool.deallocate(blocks[which]);
      asked -= sizes[which];
    }
  }
  const double reserved = static_cast<double>(pool.statistics().peak_reserved_bytes);
  report.add({{"case", name},
              {"asked_mib", static_cast<double>(peak) / (1 << 20)},
              {"reserved_mib", reserved / (1 << 20)},
              {"of_asked", reserved / static_cast<double>(peak)},
              {"upstream_allocations", pool.statistics().upstream_allocations}});
}

}  // namespace

int main(int argc, char** argv) {
  const benchmark::Report report("replay_allocations", argc, argv);
  if (benchmark::has_no_gpu_case(report, argc, argv, "it counts, and needs no memory at all"))
    return 0;
  std::vector<std::int64_t> trace;
  for (std::int64_t event; std::cin >> event;) trace.push_back(event);
  DeviceRuntime& runtime = device_runtime(DeviceType::cpu);
  CachingPool<UnbackedUpstream> caching({}, runtime, cpu);
  replay(trace, caching, "caching", report);
  CachingPool<PagedUpstream<UnbackedPages>> growable({{}, std::size_t{64} << 30}, runtime, cpu);
  replay(trace, growable, "growable", report);
}
