#pragma once

#include "cuda/layout.hpp"

namespace lockstep::cuda_kernels {

/// How the elements of a reduction fall on threads. Kept dimensions number the outputs, reduced
/// ones the terms of each.
struct ReducePlan {
  Layout<2> kept;          ///< strides of out and in over the kept dimensions
  Layout<1> reduced;       ///< strides of in over the reduced dimensions
  bool along_rows = true;  ///< a thread group shares an output; else a thread a column
  unsigned splits = 1;     ///< parts of the terms, each with a partial result
};

/// @throws Unsupported for more than 2^31 outputs, or terms of one output.
inline ReducePlan plan_reduce(const ArrayView& out, const ArrayView& in) {
  ArrayView kept_out = out;
  ArrayView kept_in = in;
  ArrayView reduced = in;
  for (int d = 0; d < in.rank(); ++d) {
    const bool is_kept = out.shape[d] == in.shape[d];
    kept_in.shape[d] = kept_out.shape[d];
    if (is_kept) reduced.shape[d] = 1;
  }
  const ArraySet<2> kept_set({&kept_out, &kept_in});
  const ArraySet<1> reduced_set({&reduced});
  constexpr std::int64_t most = std::int64_t{1} << 31;
  LOCKSTEP_CHECK(kept_set.numel() < most && reduced_set.numel() < most, Unsupported,
                 "reduce: shape ", in.shape, " to ", out.shape,
                 " on device cuda: outputs, and terms of each, must be below 2^31");
  ReducePlan plan{.kept = kept_set.layout(1), .reduced = reduced_set.layout(1)};
  const auto inner = [](const auto& set, int operand) {
    return set.rank > 0 ? std::abs(set.dims[0].strides[operand]) : INT64_MAX;
  };
  plan.along_rows = inner(reduced_set, 0) <= inner(kept_set, 1);
  // Few outputs with many terms each would leave most of the GPU idle.
  const std::int64_t outputs = kept_set.numel();
  const std::int64_t terms = reduced_set.numel();
  const std::int64_t groups = plan.along_rows ? outputs : (outputs + 31) / 32;
  const std::int64_t wanted = groups < 512 ? 512 / (groups < 1 ? 1 : groups) : 1;
  const std::int64_t possible = terms / 2048;
  plan.splits = static_cast<unsigned>(std::clamp<std::int64_t>(possible, 1, wanted));
  return plan;
}

}  // namespace lockstep::cuda_kernels
