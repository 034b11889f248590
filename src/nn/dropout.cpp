#include "lockstep/nn/dropout.hpp"

#include "lockstep/autograd/ops/norm.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

double checked(const char* layer, double p) {
  LOCKSTEP_CHECK(p >= 0 && p <= 1, InvalidArgument, layer, ": probability ", p,
                 " is outside [0, 1]");
  return p;
}

}  // namespace

Dropout::Dropout(double p) : p_(checked("Dropout", p)) {}

Tensor Dropout::forward(const Tensor& x) const { return dropout(x, p_, is_training()); }

std::string Dropout::describe() const { return text("p=", p_); }

Dropout2d::Dropout2d(double p) : p_(checked("Dropout2d", p)) {}

Tensor Dropout2d::forward(const Tensor& x) const { return dropout2d(x, p_, is_training()); }

std::string Dropout2d::describe() const { return text("p=", p_); }

}  // namespace lockstep::nn
