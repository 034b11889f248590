#pragma once

#include "cuda/row_access.hpp"
#include "functional/cross_entropy.hpp"

/// @file
/// What the kernels of cross-entropy read and write of all rows.

namespace lockstep::cuda_kernels {

/// Logits and targets of all rows.
template <class T>
struct LogitRows {
  const T* logits;
  const AccumulateType<T>* weight;
  const std::int64_t* targets;
  std::int64_t pitch;  ///< from one row of logits to the next
  std::int64_t ignore_index;
  AccumulateType<T> smoothing;

  __device__ auto row(std::int64_t row, std::int64_t classes) const {
    return functional::CrossEntropyRow<AccumulateType<T>, T>{
        logits + row * pitch,         weight,   classes, targets[row],
        targets[row] == ignore_index, smoothing};
  }
};

template <class T>
struct LossRows {
  AccumulateType<T>* loss;
  AccumulateType<T>* row_weight;
  functional::SoftmaxStatistics<AccumulateType<T>>* statistics;
};

}  // namespace lockstep::cuda_kernels
