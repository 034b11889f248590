#include "lockstep/nn/dropout.hpp"

#include "lockstep/autograd/ops/norm.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {

Dropout::Dropout(double p) : p_(checked_probability("Dropout", p)) {}

Tensor Dropout::forward(const Tensor& x) const { return dropout(x, p_, is_training()); }

std::string Dropout::describe() const { return text("p=", p_); }

Dropout2d::Dropout2d(double p) : p_(checked_probability("Dropout2d", p)) {}

Tensor Dropout2d::forward(const Tensor& x) const { return dropout2d(x, p_, is_training()); }

std::string Dropout2d::describe() const { return text("p=", p_); }

}  // namespace lockstep::nn
