#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

#include "lockstep/memory/memory_pool.hpp"

/// @file
/// The memory of devices, by the names of PyTorch's torch.cuda, for every kind of device.

namespace lockstep {

/// All counters. @throws Unsupported where the build lacks the device, as all functions here.
PoolStatistics memory_stats(Device device);
/// Bytes that tensors hold now.
std::size_t memory_allocated(Device device);
/// The most they held since the start, or `reset_peak_memory_stats`.
std::size_t max_memory_allocated(Device device);
/// Bytes that the pool holds from the driver now.
std::size_t memory_reserved(Device device);
/// The most it held.
std::size_t max_memory_reserved(Device device);
/// Counts peaks from now on.
void reset_peak_memory_stats(Device device);
/// Returns unused memory to the driver; waits for streams that still use returned blocks.
void empty_cache(Device device);
/// See MemoryPool::set_limit.
void set_memory_limit(Device device, std::size_t bytes);

/// Records the last events of a device's pool, and who allocates, from now on.
/// @param max_events nothing: no longer.
void record_memory_history(Device device, std::optional<std::size_t> max_events = 1'000'000);
/// What the pool of a device holds, and the events recorded.
MemorySnapshot memory_snapshot(Device device);
/// Writes the snapshot as JSON, which scripts/memory_plot.py draws. @throws Error where the file
/// cannot be written.
void dump_memory_snapshot(Device device, const std::filesystem::path& file);

}  // namespace lockstep
