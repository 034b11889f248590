#pragma once

#include <vector>

#include "cpu/loops.hpp"
#include "lockstep/core/array_view.hpp"

namespace lockstep::cpu_kernels {

/// A vector of parameters brought into the accumulation type that row loops read; the view's own
/// memory where it has that type already.
class Widened {
 public:
  /// @param view contiguous or absent; @param type the accumulation type of the loop.
  Widened(const ArrayView& view, Accumulate type);
  /// The values, or null for an absent view.
  const void* data() const { return data_; }

 private:
  std::vector<double> storage_;
  const void* data_ = nullptr;
};

}  // namespace lockstep::cpu_kernels
