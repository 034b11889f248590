#pragma once

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "cuda/row_access.hpp"
#include "runtime/cuda/check.hpp"

/// @file
/// Rows that groups keep in registers, so that each element is read once: a warp a row, or a block
/// for longer ones, and as many groups as are resident, each with every so many-th row. What they
/// need of all rows, as weights and sums over rows, stays in registers too.

namespace lockstep::cuda_kernels {

/// Elements of a row that a thread keeps.
template <class T>
inline constexpr int kept_elements = sizeof(T) == 8 ? 8 : 24;

/// Threads of a block whose warps have a row each.
inline constexpr int kept_warps_threads = 128;

/// The bounds of a kernel of which a multiprocessor is to hold `resident` threads.
template <class Group, int resident>
inline constexpr int kept_block =
    std::is_base_of_v<WarpGroup, Group> ? kept_warps_threads : resident;

/// Calls `visit(k, at)` for the vectors of a row that the thread keeps: the k-th begins at `at`.
template <int vectors, class Group, class Visit>
__device__ void for_each_kept(const Group& group, std::int64_t columns, const Visit& visit) {
  LOCKSTEP_UNROLL
  for (int k = 0; k < vectors; ++k) {
    const std::int64_t at =
        (static_cast<std::int64_t>(k) * group.size() + group.rank()) * Group::width;
    if (at < columns) visit(k, at);
  }
}

/// How kernels over kept rows are launched.
struct KeptRows {
  bool by_warps;  ///< a warp a row, else a block
  unsigned threads, blocks;
};

/// Of a device; asked for once a thread.
template <cudaDeviceAttr attribute>
std::int64_t attribute_of(int device) {
  thread_local std::unordered_map<int, int> values;
  if (const auto known = values.find(device); known != values.end()) return known->second;
  int value = 0;
  LOCKSTEP_CUDA_CALL(cudaDeviceGetAttribute, &value, attribute, device);
  return values[device] = value;
}
inline std::int64_t multiprocessors_of(int device) {
  return attribute_of<cudaDevAttrMultiProcessorCount>(device);
}
/// The most shared memory that a block may ask for.
inline std::int64_t shared_bytes_of(int device) {
  return attribute_of<cudaDevAttrMaxSharedMemoryPerBlockOptin>(device);
}

/// Nothing for rows that a block of `resident` threads cannot keep. There are as many blocks as the
/// device runs at once: each has an equal share, and a second wave would take as long as the first.
/// @param least_rows of a block, where it has something to do besides
template <class T, int resident>
std::optional<KeptRows> keep_rows(int device, std::int64_t rows, std::int64_t columns,
                                  std::int64_t least_rows = 1) {
  constexpr std::int64_t per_warp = warp_size * kept_elements<T>;
  const std::int64_t warps = (columns + per_warp - 1) / per_warp;
  if (warps < 1 || warps > resident / warp_size) return std::nullopt;
  const bool by_warps = warps == 1;
  const auto threads = static_cast<unsigned>(by_warps ? kept_warps_threads : warps * warp_size);
  if (by_warps) least_rows = std::max<std::int64_t>(least_rows, kept_warps_threads / warp_size);
  const std::int64_t blocks = (rows + least_rows - 1) / least_rows;
  const std::int64_t most = multiprocessors_of(device) * (resident / static_cast<int>(threads));
  return KeptRows{by_warps, threads,
                  static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, most))};
}

}  // namespace lockstep::cuda_kernels
