#include "backend/reduce.hpp"

#include <limits>

#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"
#include "cuda/move.hpp"
#include "cuda/reduce.hpp"

namespace lockstep::backend {
namespace {

namespace kernels = cuda_kernels;

/// What a reduction over no elements gives; no grid runs over them.
void reduce_nothing(ReduceOp op, const ArrayView& out, const ArrayView& in, bool accumulate,
                    StreamRef stream) {
  LOCKSTEP_CHECK(op != ReduceOp::amax && op != ReduceOp::amin, InvalidArgument,
                 op == ReduceOp::amax ? "amax" : "amin", " of no elements: shape ", in.shape);
  if (accumulate) return;
  kernels::fill(out, op == ReduceOp::mean ? std::numeric_limits<double>::quiet_NaN() : 0.0, stream);
}

class CudaReduce final : public Reduce {
 public:
  void reduce(ReduceOp op, const ArrayView& out, const ArrayView& in, bool accumulate,
              StreamRef stream) override {
    if (out.numel() == 0) return;
    if (in.numel() == 0) return reduce_nothing(op, out, in, accumulate, stream);
    const Scratch scratch(kernels::reduce_scratch_bytes(out, in), stream);
    kernels::reduce(op, out, in, accumulate, scratch.data(), stream);
  }
  void arg_extreme(const ArrayView& out, const ArrayView& in, int dim, bool largest,
                   StreamRef stream) override {
    kernels::arg_extreme(out, in, dim, largest, stream);
  }
  void cumsum(const ArrayView& out, const ArrayView& in, int dim, bool reverse,
              StreamRef stream) override {
    kernels::cumsum(out, in, dim, reverse, stream);
  }
  void topk(const ArrayView& values, const ArrayView& indices, const ArrayView& in, std::int64_t k,
            StreamRef stream) override {
    kernels::topk(values, indices, in, k, stream);
  }
  void gather(const ArrayView& out, const ArrayView& in, const ArrayView& index, int dim,
              StreamRef stream) override {
    kernels::gather(out, in, index, dim, stream);
  }
  void scatter_add(const ArrayView& out, const ArrayView& in, const ArrayView& index, int dim,
                   StreamRef stream) override {
    kernels::scatter_add(out, in, index, dim, stream);
  }
};

}  // namespace

Reduce& cuda_families::reduce() {
  static CudaReduce family;
  return family;
}

}  // namespace lockstep::backend
