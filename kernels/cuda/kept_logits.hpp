#pragma once

#include "cuda/async_copy.hpp"
#include "cuda/kept_rows.hpp"
#include "cuda/logit_rows.hpp"

/// @file
/// Loss and gradient of long rows of 16-bit logits that a block keeps in shared memory: each logit
/// is read once, and those of the next row come while the gradient of this one is written.

namespace lockstep::cuda_kernels {

/// Threads of a block, and blocks of a multiprocessor where two rows fit: one waits for memory
/// while the other computes.
inline constexpr int kept_logits_threads = 512, kept_logits_blocks = 2;

/// The rows that a block has in shared memory one after another. Threads copy what they read
/// themselves, as for_each_pack deals it out.
template <class Group, class T>
struct KeptLogits {
  static constexpr int width = Group::width;
  T* kept;
  const T* logits;
  std::int64_t rows, pitch;
  int classes, rank;
  T last;  ///< the thread's element behind the whole packs of a row that is being fetched

  __device__ const T* source(std::int64_t row) const { return logits + row * pitch; }
  __device__ int behind_packs() const { return classes - classes % width + rank; }

  /// Begins to fetch a row's elements behind its whole packs, where there is such a row.
  __device__ void begin_last(std::int64_t row) {
    if (row < rows && rank < classes % width) last = source(row)[behind_packs()];
  }
  __device__ void keep_last() {
    if (rank < classes % width) kept[behind_packs()] = last;
  }
  /// The whole of the first row.
  __device__ void begin(const Group& group, std::int64_t row) {
    if (row >= rows) return;
    const T* const from = source(row);
    for (int i = rank * width; i + width <= classes; i += group.size() * width)
      begin_copy(kept + i, from + i);
    begin_last(row);
    keep_last();
  }
};

template <class Group, class T>
__global__ void __launch_bounds__(kept_logits_threads, kept_logits_blocks)
    cross_entropy_gradient_kept_kernel(std::int64_t rows, int classes, T* in_place,
                                       std::int64_t padding, LossRows<T> losses,
                                       const AccumulateType<T>* dloss, std::int64_t dloss_stride,
                                       LogitRows<T> logits) {
  using A = AccumulateType<T>;
  const Group group;
  KeptLogits<Group, T> rows_kept{dynamic_shared<T>(), in_place, rows, logits.pitch, classes,
                                 group.rank(),        T{}};
  const T* const kept = rows_kept.kept;
  rows_kept.begin(group, blockIdx.x);
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t next = row + gridDim.x;
    rows_kept.begin_last(next);
    const std::int64_t target = logits.targets[row];
    const A slope = dloss ? dloss[row * dloss_stride] : A(1);
    const functional::CrossEntropyRow<A, T, int> given{
        kept, nullptr, classes, target, target == logits.ignore_index, logits.smoothing};
    wait_for_copies();
    const auto statistics = functional::online_softmax_statistics<A>(group, kept, classes);
    const auto result = functional::cross_entropy_row(group, given, statistics);
    group.sync();  // all have read the target's logit
    T* const out = computed_once(in_place + row * logits.pitch);
    const T* const from = computed_once(rows_kept.logits + next * logits.pitch);
    functional::cross_entropy_backward_row(
        group, out, slope, statistics, given,
        functional::RowExponentials<A, T>{kept, statistics.maximum}, [&](int i, auto lanes) {
          if constexpr (lanes.value == Group::width)
            if (next < rows) begin_copy(rows_kept.kept + i, from + i);
        });
    rows_kept.keep_last();
    for (std::int64_t i = group.rank(); i < padding; i += group.size())
      out[classes + i] = convert<T>(A(0));
    if (group.rank() != 0) continue;
    losses.loss[row] = result.loss;
    losses.row_weight[row] = result.row_weight;
  }
}

/// The most bytes of shared memory that a row may take: what a block of the device may ask for,
/// less what reductions take.
inline std::size_t most_kept_logits_bytes(int device) {
  constexpr std::int64_t for_reductions = 1024;
  return static_cast<std::size_t>(
      std::max<std::int64_t>(shared_bytes_of(device) - for_reductions, 0));
}

/// Bytes of shared memory for a row, or 0 where a block of the device has not as much.
template <class T>
std::size_t kept_logits_bytes(int device, std::int64_t classes) {
  const auto bytes = (static_cast<std::size_t>(classes) * sizeof(T) + 15) / 16 * 16;
  return bytes <= most_kept_logits_bytes(device) ? bytes : 0;
}

}  // namespace lockstep::cuda_kernels
