#include "lockstep/memory/memory_stats.hpp"

#include <fstream>

#include "lockstep/core/error.hpp"

namespace lockstep {

PoolStatistics memory_stats(Device device) { return memory_pool(device).statistics(); }
std::size_t memory_allocated(Device device) { return memory_stats(device).live_bytes; }
std::size_t max_memory_allocated(Device device) { return memory_stats(device).peak_live_bytes; }
std::size_t memory_reserved(Device device) { return memory_stats(device).reserved_bytes; }
std::size_t max_memory_reserved(Device device) { return memory_stats(device).peak_reserved_bytes; }
void reset_peak_memory_stats(Device device) { memory_pool(device).reset_peak(); }
void empty_cache(Device device) { memory_pool(device).release_cached(); }
void set_memory_limit(Device device, std::size_t bytes) { memory_pool(device).set_limit(bytes); }

void record_memory_history(Device device, std::optional<std::size_t> max_events) {
  memory_pool(device).record_history(max_events);
}

MemorySnapshot memory_snapshot(Device device) { return memory_pool(device).snapshot(); }

void dump_memory_snapshot(Device device, const std::filesystem::path& file) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << to_json({memory_snapshot(device)}) << '\n';
  out.close();
  LOCKSTEP_CHECK(out, Error, "cannot write the memory snapshot to ", file.string());
}

}  // namespace lockstep
