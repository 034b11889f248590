#include "lockstep/autograd/ops.hpp"

// Ops as members of Tensor: each calls the function of its name.

namespace lockstep {

Tensor Tensor::abs() const { return lockstep::abs(*this); }
Tensor Tensor::ceil() const { return lockstep::ceil(*this); }
Tensor Tensor::cos() const { return lockstep::cos(*this); }
Tensor Tensor::log2() const { return lockstep::log2(*this); }
Tensor Tensor::log10() const { return lockstep::log10(*this); }
Tensor Tensor::tan() const { return lockstep::tan(*this); }
Tensor Tensor::atan() const { return lockstep::atan(*this); }
Tensor Tensor::remainder(const Tensor& other) const { return lockstep::remainder(*this, other); }
Tensor Tensor::remainder(Scalar value) const { return lockstep::remainder(*this, value); }
Tensor Tensor::erf() const { return lockstep::erf(*this); }
Tensor Tensor::exp() const { return lockstep::exp(*this); }
Tensor Tensor::floor() const { return lockstep::floor(*this); }
Tensor Tensor::log() const { return lockstep::log(*this); }
Tensor Tensor::log1p() const { return lockstep::log1p(*this); }
Tensor Tensor::neg() const { return lockstep::neg(*this); }
Tensor Tensor::relu() const { return lockstep::relu(*this); }
Tensor Tensor::round() const { return lockstep::round(*this); }
Tensor Tensor::rsqrt() const { return lockstep::rsqrt(*this); }
Tensor Tensor::sigmoid() const { return lockstep::sigmoid(*this); }
Tensor Tensor::sign() const { return lockstep::sign(*this); }
Tensor Tensor::sin() const { return lockstep::sin(*this); }
Tensor Tensor::sqrt() const { return lockstep::sqrt(*this); }
Tensor Tensor::square() const { return lockstep::square(*this); }
Tensor Tensor::tanh() const { return lockstep::tanh(*this); }
Tensor Tensor::isfinite() const { return lockstep::isfinite(*this); }
Tensor Tensor::isinf() const { return lockstep::isinf(*this); }
Tensor Tensor::isnan() const { return lockstep::isnan(*this); }
Tensor Tensor::logical_not() const { return lockstep::logical_not(*this); }
Tensor Tensor::clamp(Scalar low, Scalar high) const { return lockstep::clamp(*this, low, high); }
Tensor Tensor::clamp_min(Scalar low) const { return lockstep::clamp_min(*this, low); }
Tensor Tensor::clamp_max(Scalar high) const { return lockstep::clamp_max(*this, high); }
Tensor Tensor::pow(double exponent) const { return lockstep::pow(*this, exponent); }
Tensor Tensor::pow(const Tensor& exponent) const { return lockstep::pow(*this, exponent); }
Tensor Tensor::eq(const Tensor& other) const { return lockstep::eq(*this, other); }
Tensor Tensor::eq(Scalar value) const { return lockstep::eq(*this, value); }
Tensor Tensor::ne(const Tensor& other) const { return lockstep::ne(*this, other); }
Tensor Tensor::ne(Scalar value) const { return lockstep::ne(*this, value); }
Tensor Tensor::lt(const Tensor& other) const { return lockstep::lt(*this, other); }
Tensor Tensor::lt(Scalar value) const { return lockstep::lt(*this, value); }
Tensor Tensor::le(const Tensor& other) const { return lockstep::le(*this, other); }
Tensor Tensor::le(Scalar value) const { return lockstep::le(*this, value); }
Tensor Tensor::gt(const Tensor& other) const { return lockstep::gt(*this, other); }
Tensor Tensor::gt(Scalar value) const { return lockstep::gt(*this, value); }
Tensor Tensor::ge(const Tensor& other) const { return lockstep::ge(*this, other); }
Tensor Tensor::ge(Scalar value) const { return lockstep::ge(*this, value); }
Tensor Tensor::maximum(const Tensor& other) const { return lockstep::maximum(*this, other); }
Tensor Tensor::minimum(const Tensor& other) const { return lockstep::minimum(*this, other); }
Tensor Tensor::logical_and(const Tensor& other) const {
  return lockstep::logical_and(*this, other);
}
Tensor Tensor::logical_or(const Tensor& other) const { return lockstep::logical_or(*this, other); }
Tensor Tensor::matmul(const Tensor& other) const { return lockstep::matmul(*this, other); }
Tensor Tensor::mm(const Tensor& other) const { return lockstep::mm(*this, other); }
Tensor Tensor::bmm(const Tensor& other) const { return lockstep::bmm(*this, other); }
Tensor Tensor::expand_as(const Tensor& other) const { return lockstep::expand_as(*this, other); }
Tensor Tensor::softmax(std::int64_t dim) const { return lockstep::softmax(*this, dim); }
Tensor Tensor::log_softmax(std::int64_t dim) const { return lockstep::log_softmax(*this, dim); }
Tensor Tensor::sum(const Dims& dims, bool keepdim) const {
  return lockstep::sum(*this, dims, keepdim);
}
Tensor Tensor::mean(const Dims& dims, bool keepdim) const {
  return lockstep::mean(*this, dims, keepdim);
}
Tensor Tensor::prod(const Dims& dims, bool keepdim) const {
  return lockstep::prod(*this, dims, keepdim);
}
Tensor Tensor::amax(const Dims& dims, bool keepdim) const {
  return lockstep::amax(*this, dims, keepdim);
}
Tensor Tensor::amin(const Dims& dims, bool keepdim) const {
  return lockstep::amin(*this, dims, keepdim);
}
Tensor Tensor::logsumexp(const Dims& dims, bool keepdim) const {
  return lockstep::logsumexp(*this, dims, keepdim);
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
Tensor Tensor::var(const Dims& dims, std::int64_t correction, bool keepdim) const {
  return lockstep::var(*this, dims, correction, keepdim);
}
Tensor Tensor::std(const Dims& dims, std::int64_t correction, bool keepdim) const {
  return lockstep::std(*this, dims, correction, keepdim);
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
std::pair<Tensor, Tensor> Tensor::sort(std::int64_t dim, bool descending) const {
  return lockstep::sort(*this, dim, descending);
}
Tensor Tensor::argsort(std::int64_t dim, bool descending) const {
  return lockstep::argsort(*this, dim, descending);
}
std::pair<Tensor, Tensor> Tensor::topk(std::int64_t k, std::int64_t dim, bool largest) const {
  return lockstep::topk(*this, k, dim, largest);
}
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const {
  return lockstep::masked_fill(*this, mask, value);
}
Tensor Tensor::masked_select(const Tensor& mask) const {
  return lockstep::masked_select(*this, mask);
}
Tensor Tensor::nonzero() const { return lockstep::nonzero(*this); }
Tensor Tensor::gather(std::int64_t dim, const Tensor& index) const {
  return lockstep::gather(*this, dim, index);
}
Tensor Tensor::index_select(std::int64_t dim, const Tensor& index) const {
  return lockstep::index_select(*this, dim, index);
}
Tensor Tensor::scatter(std::int64_t dim, const Tensor& index, Scalar value) const {
  return lockstep::scatter(*this, dim, index, value);
}
Tensor Tensor::scatter(std::int64_t dim, const Tensor& index, const Tensor& source) const {
  return lockstep::scatter(*this, dim, index, source);
}
Tensor Tensor::flip(const Dims& dims) const { return lockstep::flip(*this, dims); }
Tensor Tensor::roll(std::int64_t shift, std::int64_t dim) const {
  return lockstep::roll(*this, shift, dim);
}
Tensor Tensor::scatter_add(std::int64_t dim, const Tensor& index, const Tensor& source) const {
  return lockstep::scatter_add(*this, dim, index, source);
}
Tensor Tensor::index_add(std::int64_t dim, const Tensor& index, const Tensor& source,
                         double alpha) const {
  return lockstep::index_add(*this, dim, index, source, alpha);
}
Tensor Tensor::repeat(const Dims& times) const { return lockstep::repeat(*this, times); }
Tensor Tensor::tril(std::int64_t diagonal) const { return lockstep::tril(*this, diagonal); }
Tensor Tensor::triu(std::int64_t diagonal) const { return lockstep::triu(*this, diagonal); }
std::vector<Tensor> Tensor::chunk(std::int64_t chunks, std::int64_t dim) const {
  return lockstep::chunk(*this, chunks, dim);
}
std::vector<Tensor> Tensor::split(std::int64_t size, std::int64_t dim) const {
  return lockstep::split(*this, size, dim);
}
std::vector<Tensor> Tensor::unbind(std::int64_t dim) const { return lockstep::unbind(*this, dim); }

}  // namespace lockstep
