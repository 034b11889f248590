#pragma once

#include <cstdint>

/// @file
/// Loops that resize rows of images.

namespace lockstep::cpu_kernels {

/// How `results` values are made of others along one dimension: term k of result j is
/// weight[k * results + j] * x[from[k * results + j]], or none where the weight is 0.
template <class T>
struct ResizeTerms {
  const T* weight;
  const std::int32_t* from;
  std::int64_t results, terms;
};

template <class T>
struct ResizeLoops {
  /// sum = weight * x, or that more, of n elements.
  void (*add_row)(T* sum, const T* x, T weight, bool more, std::int64_t n) = nullptr;
  /// y of x, both of groups of `group` neighbours that are resized alike.
  void (*resize_row)(T* y, const T* x, const ResizeTerms<T>& terms, std::int64_t group) = nullptr;
};

}  // namespace lockstep::cpu_kernels
