#include "backend/reduce.hpp"

#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"
#include "cuda/reduce.hpp"

namespace lockstep::backend {
namespace {

namespace kernels = cuda_kernels;

class CudaReduce final : public Reduce {
 public:
  void reduce(ReduceOp op, const ArrayView& out, const ArrayView& in, bool accumulate,
              StreamRef stream) override {
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
