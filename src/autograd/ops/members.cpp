#include "lockstep/autograd/ops.hpp"

// Ops as members of Tensor: each calls the function of its name.

namespace lockstep {

Tensor Tensor::abs() const { return lockstep::abs(*this); }
Tensor Tensor::clamp(double low, double high) const { return lockstep::clamp(*this, low, high); }
Tensor Tensor::exp() const { return lockstep::exp(*this); }
Tensor Tensor::log() const { return lockstep::log(*this); }
Tensor Tensor::pow(double exponent) const { return lockstep::pow(*this, exponent); }
Tensor Tensor::relu() const { return lockstep::relu(*this); }
Tensor Tensor::round() const { return lockstep::round(*this); }
Tensor Tensor::sigmoid() const { return lockstep::sigmoid(*this); }
Tensor Tensor::sqrt() const { return lockstep::sqrt(*this); }
Tensor Tensor::square() const { return lockstep::square(*this); }
Tensor Tensor::tanh() const { return lockstep::tanh(*this); }
Tensor Tensor::softmax(std::int64_t dim) const { return lockstep::softmax(*this, dim); }
Tensor Tensor::log_softmax(std::int64_t dim) const { return lockstep::log_softmax(*this, dim); }
Tensor Tensor::eq(const Tensor& other) const { return lockstep::eq(*this, other); }
Tensor Tensor::eq(double value) const { return lockstep::eq(*this, value); }
Tensor Tensor::ne(const Tensor& other) const { return lockstep::ne(*this, other); }
Tensor Tensor::ne(double value) const { return lockstep::ne(*this, value); }
Tensor Tensor::masked_fill(const Tensor& mask, double value) const {
  return lockstep::masked_fill(*this, mask, value);
}
Tensor Tensor::gather(std::int64_t dim, const Tensor& index) const {
  return lockstep::gather(*this, dim, index);
}
Tensor Tensor::index_select(std::int64_t dim, const Tensor& index) const {
  return lockstep::index_select(*this, dim, index);
}
Tensor Tensor::sum(const Dims& dims, bool keepdim) const {
  return lockstep::sum(*this, dims, keepdim);
}
Tensor Tensor::mean(const Dims& dims, bool keepdim) const {
  return lockstep::mean(*this, dims, keepdim);
}
Tensor Tensor::var(const Dims& dims, std::int64_t correction, bool keepdim) const {
  return lockstep::var(*this, dims, correction, keepdim);
}
Tensor Tensor::norm(const Dims& dims, bool keepdim) const {
  return lockstep::norm(*this, dims, keepdim);
}
Tensor Tensor::any(const Dims& dims, bool keepdim) const {
  return lockstep::any(*this, dims, keepdim);
}
Tensor Tensor::all(const Dims& dims, bool keepdim) const {
  return lockstep::all(*this, dims, keepdim);
}
Tensor Tensor::max() const { return lockstep::max(*this); }
std::pair<Tensor, Tensor> Tensor::max(std::int64_t dim, bool keepdim) const {
  return lockstep::max(*this, dim, keepdim);
}
Tensor Tensor::min() const { return lockstep::min(*this); }
std::pair<Tensor, Tensor> Tensor::min(std::int64_t dim, bool keepdim) const {
  return lockstep::min(*this, dim, keepdim);
}
Tensor Tensor::argmax() const { return lockstep::argmax(*this); }
Tensor Tensor::argmax(std::int64_t dim, bool keepdim) const {
  return lockstep::argmax(*this, dim, keepdim);
}
Tensor Tensor::argmin() const { return lockstep::argmin(*this); }
Tensor Tensor::argmin(std::int64_t dim, bool keepdim) const {
  return lockstep::argmin(*this, dim, keepdim);
}
Tensor Tensor::cumsum(std::int64_t dim) const { return lockstep::cumsum(*this, dim); }
Tensor Tensor::matmul(const Tensor& other) const { return lockstep::matmul(*this, other); }

}  // namespace lockstep
