#include "cuda/multi_tensor.hpp"

#include <cmath>
#include <vector>

#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"
#include "backend/reduce.hpp"

namespace lockstep::backend {
namespace {

namespace kernels = cuda_kernels;

AdamCoefficients coefficients_of(const AdamConstants& c) {
  const auto step = static_cast<double>(c.step);
  return {.gradient_sign = c.maximize ? -1.0 : 1.0,
          .coupled_decay = c.decoupled_decay ? 0.0 : c.weight_decay,
          .shrink = c.decoupled_decay ? 1 - c.lr * c.weight_decay : 1.0,
          .beta1_rest = 1 - c.beta1,
          .beta2 = c.beta2,
          .beta2_rest = 1 - c.beta2,
          .eps = c.eps,
          .step_size = c.lr / (1 - std::pow(c.beta1, step)),
          .root_correction2 = std::sqrt(1 - std::pow(c.beta2, step))};
}

/// The lists as the kernels take them; states that the rule does not use are left out.
std::vector<kernels::OptimizerArrays> arrays_of(std::span<const OptimizerTensors> tensors,
                                                int states) {
  std::vector<kernels::OptimizerArrays> list;
  list.reserve(tensors.size());
  for (const OptimizerTensors& each : tensors)
    list.push_back({each.parameter, each.gradient, states > 0 ? each.state1 : ArrayView{},
                    states > 1 ? each.state2 : ArrayView{},
                    states > 2 ? each.max_state2 : ArrayView{}});
  return list;
}

class CudaMultiTensor final : public MultiTensor {
 public:
  void sgd(std::span<const OptimizerTensors> tensors, const SgdConstants& c,
           StreamRef stream) override {
    const SgdCoefficients coefficients{.gradient_sign = c.maximize ? -1.0 : 1.0,
                                       .lr = c.lr,
                                       .momentum = c.momentum,
                                       .dampening_rest = 1 - c.dampening,
                                       .weight_decay = c.weight_decay,
                                       .nesterov = c.nesterov,
                                       .first_step = c.first_step};
    kernels::sgd(arrays_of(tensors, c.momentum != 0 ? 1 : 0), coefficients, stream);
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
