#include "lockstep/nn/dropout.hpp"

#include "lockstep/autograd/ops/norm.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {

Dropout::Dropout(double p) : p_(p) {
  LOCKSTEP_CHECK(p >= 0 && p <= 1, InvalidArgument, "Dropout: probability ", p,
                 " is outside [0, 1]");
}

Tensor Dropout::forward(const Tensor& x) const { return dropout(x, p_, is_training()); }

std::string Dropout::describe() const { return text("p=", p_); }

}  // namespace lockstep::nn
