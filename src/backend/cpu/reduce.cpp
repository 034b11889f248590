#include "backend/reduce.hpp"

#include "backend/cpu/families.hpp"
#include "cpu/index.hpp"
#include "cpu/reduce.hpp"

namespace lockstep::backend {
namespace {

class CpuReduce final : public Reduce {
 public:
  void reduce(ReduceOp op, const ArrayView& out, const ArrayView& in, bool accumulate,
              StreamRef) override {
    host::reduce(op, out, in, accumulate);
  }
  void arg_extreme(const ArrayView& out, const ArrayView& in, int dim, bool largest,
                   StreamRef) override {
    host::arg_extreme(out, in, dim, largest);
  }
  void cumsum(const ArrayView& out, const ArrayView& in, int dim, bool reverse,
              StreamRef) override {
    host::cumsum(out, in, dim, reverse);
  }
  void topk(const ArrayView& values, const ArrayView& indices, const ArrayView& in, std::int64_t k,
            StreamRef) override {
    host::topk(values, indices, in, k);
  }
  void gather(const ArrayView& out, const ArrayView& in, const ArrayView& index, int dim,
              StreamRef) override {
    host::gather(out, in, index, dim);
  }
  void scatter_add(const ArrayView& out, const ArrayView& in, const ArrayView& index, int dim,
                   StreamRef) override {
    host::scatter_add(out, in, index, dim);
  }
};

}  // namespace

Reduce& cpu_reduce() {
  static CpuReduce family;
  return family;
}

}  // namespace lockstep::backend
