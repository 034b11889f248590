#pragma once

#include "arguments/elementwise.hpp"
#include "arguments/norm.hpp"
#include "arguments/reduction.hpp"

namespace lockstep::kernels {

/// Computes by-products from the arrays, by kernels of their own: where the norm's has none.
/// @param copy called with CopyArguments
/// @param reduce called with ReduceArguments
template <class Copy, class Reduce>
void compute_byproducts(const LayerNormBackwardArguments& a, const Copy& copy,
                        const Reduce& reduce) {
  const auto sum = [&](const ArrayView& in, ArrayView out, bool accumulate) {
    out.shape = {1, out.shape[0]};
    out.strides = {0, out.strides[0]};
    reduce(ReduceArguments{.op = ReduceOp::sum, .out = out, .in = in, .accumulate = accumulate});
  };
  const NormByproducts& more = a.byproducts;
  if (more.dx_copy) copy(CopyArguments{.out = more.dx_copy, .in = a.dx});
  if (more.dx_sums) sum(a.dx, more.dx_sums, more.add_dx_sums);
  if (more.dx_totals) sum(a.dx, more.dx_totals, false);
  if (more.summand) sum(more.summand, more.sums, more.add_sums);
}

}  // namespace lockstep::kernels
