#include "cuda/multi_tensor.hpp"

#include <vector>

#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"
#include "backend/optimizer_coefficients.hpp"

namespace lockstep::backend {
namespace {

namespace kernels = cuda_kernels;

/// The lists as the kernels take them; states that the rule does not use are left out.
std::vector<kernels::OptimizerArrays> arrays_of(std::span<const OptimizerTensors> tensors,
                                                int states) {
  std::vector<kernels::OptimizerArrays> list;
  list.reserve(tensors.size());
  for (const OptimizerTensors& each : tensors)
    list.push_back({each.parameter, each.gradient, states > 0 ? each.state1 : ArrayView{},
                    states > 1 ? each.state2 : ArrayView{},
                    states > 2 ? each.max_state2 : ArrayView{}, each.master});
  return list;
}

class CudaMultiTensor final : public MultiTensor {
 public:
  void sgd(std::span<const OptimizerTensors> tensors, const SgdConstants& c,
           StreamRef stream) override {
    kernels::sgd(arrays_of(tensors, c.momentum != 0 ? 1 : 0), coefficients_of(c), stream);
  }
  void adam(std::span<const OptimizerTensors> tensors, const AdamConstants& c,
            StreamRef stream) override {
    kernels::adam(arrays_of(tensors, c.amsgrad ? 3 : 2), coefficients_of(c), stream);
  }
  void square_sum(const ArrayView& out, std::span<const ArrayView> arrays,
                  StreamRef stream) override {
    const Scratch scratch(kernels::square_sum_scratch_bytes(arrays), stream);
    kernels::square_sum(out, arrays, scratch.data(), stream);
  }
  void clip(std::span<const ArrayView> arrays, const ArrayView& square_sum, double limit,
            StreamRef stream) override {
    kernels::clip(arrays, square_sum, limit, stream);
  }
};

}  // namespace

MultiTensor& cuda_families::multi_tensor() {
  static CudaMultiTensor family;
  return family;
}

}  // namespace lockstep::backend
