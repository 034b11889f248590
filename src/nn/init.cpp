#include "lockstep/nn/init.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "functional/uniform_bound.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops/matmul.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::nn::init {
namespace {

/// What random numbers for a tensor are drawn as: bf16 and f16 would give few different values.
TensorOptions draw_options(const Tensor& tensor) {
  return {tensor.dtype() == DType::f64 ? DType::f64 : DType::f32, tensor.device()};
}

double kaiming_deviation(const Tensor& weight, Kaiming options) {
  const Fans fans = fans_of(weight);
  const auto fan = static_cast<double>(options.mode == FanMode::in ? fans.in : fans.out);
  return fan > 0 ? std::sqrt(2.0 / ((1.0 + options.slope * options.slope) * fan)) : 0.0;
}

double xavier_deviation(const Tensor& weight, double gain) {
  const Fans fans = fans_of(weight);
  const auto both = static_cast<double>(fans.in + fans.out);
  return both > 0 ? gain * std::sqrt(2.0 / both) : 0.0;
}

/// Makes some rows of a matrix orthonormal, in place, one after the other.
void orthonormalise(Tensor& rows) {
  const std::int64_t count = rows.size(0), length = rows.size(1);
  double* const first = rows.data<double>();
  const auto product = [&](const double* a, const double* b) {
    return std::inner_product(a, a + length, b, 0.0);
  };
  for (std::int64_t i = 0; i < count; ++i) {
    double* const row = first + i * length;
    for (std::int64_t k = 0; k < i; ++k) {
      const double* const before = first + k * length;
      const double along = product(row, before);
      for (std::int64_t j = 0; j < length; ++j) row[j] -= along * before[j];
    }
    const double norm = std::sqrt(product(row, row));
    for (std::int64_t j = 0; j < length; ++j) row[j] /= norm;
  }
}

/// Random orthonormal rows, no more than they have elements: those of normal ones, by Gram and
/// Schmidt, block by block and each twice, so that rounding leaves nothing of the rows before.
Tensor orthonormal_rows(std::int64_t count, std::int64_t length, Generator& generator) {
  constexpr std::int64_t block_rows = 32;
  const Tensor all = randn({count, length}, {.dtype = DType::f64}, generator);
  for (std::int64_t begin = 0; begin < count; begin += block_rows) {
    const Tensor before = all.slice(0, 0, begin);
    Tensor block = all.slice(0, begin, std::min(count, begin + block_rows));
    for (int pass = 0; pass < 2; ++pass) {
      if (begin > 0) block.sub_(matmul(matmul(block, before.transpose(0, 1)), before));
      orthonormalise(block);
    }
  }
  return all;
}

/// Uniform with mean 0 and the given standard deviation.
Tensor centred_uniform(Tensor tensor, double deviation, Generator& generator) {
  const double bound = std::sqrt(3.0) * deviation;
  return uniform_(std::move(tensor), -bound, bound, generator);
}

constinit thread_local bool is_left_out = false;

}  // namespace

NoInitGuard::NoInitGuard() noexcept : previous_(std::exchange(is_left_out, true)) {}
NoInitGuard::~NoInitGuard() { is_left_out = previous_; }

Tensor uniform_(Tensor tensor, double low, double high, Generator& generator) {
  LOCKSTEP_CHECK(low <= high, InvalidArgument, "uniform_: bounds [", low, ", ", high,
                 "]; they must not fall");
  LOCKSTEP_CHECK(tensor.dtype() == DType::f64 || std::isfinite(static_cast<float>(high - low)),
                 InvalidArgument, "uniform_: bounds [", low, ", ", high,
                 "]; numbers are drawn in f32, which does not have their distance");
  if (is_left_out) return tensor;
  const NoGradGuard no_recording;
  const Tensor drawn = rand(tensor.shape(), draw_options(tensor), generator);
  // Rounding to the tensor's dtype could give the bound that is not among the numbers.
  const double last = functional::last_of_uniform(low, high, tensor.dtype());
  return tensor.copy_(clamp_max(affine(drawn, high - low, low), last));
}

Tensor normal_(Tensor tensor, double mean, double deviation, Generator& generator) {
  LOCKSTEP_CHECK(deviation >= 0, InvalidArgument, "normal_: a deviation of ", deviation,
                 "; it must not be negative");
  if (is_left_out) return tensor;
  const NoGradGuard no_recording;
  const Tensor drawn = randn(tensor.shape(), draw_options(tensor), generator);
  return tensor.copy_(affine(drawn, deviation, mean));
}

Tensor orthogonal_(Tensor tensor, double gain, Generator& generator) {
  LOCKSTEP_CHECK(tensor.dim() >= 2, InvalidArgument, "orthogonal_: a tensor of shape ",
                 tensor.shape(), "; it needs two dimensions or more");
  if (is_left_out) return tensor;
  const NoGradGuard no_recording;
  if (tensor.numel() == 0) return tensor;
  const std::int64_t rows = tensor.size(0), columns = tensor.numel() / rows;
  const Tensor made = orthonormal_rows(std::min(rows, columns), std::max(rows, columns), generator);
  const Tensor matrix = rows <= columns ? made : made.transpose(0, 1).contiguous();
  return tensor.copy_((matrix * gain).reshape(tensor.shape()).to(tensor.device()));
}

Tensor constant_(Tensor tensor, double value) {
  if (is_left_out) return tensor;
  const NoGradGuard no_recording;
  return tensor.fill_(value);
}

Tensor trunc_normal_(Tensor tensor, TruncatedNormal options, Generator& generator) {
  LOCKSTEP_CHECK(options.low < options.high && options.deviation > 0, InvalidArgument,
                 "trunc_normal_: bounds [", options.low, ", ", options.high, "] and deviation ",
                 options.deviation, "; the bounds must rise and the deviation be above 0");
  // Redrawing would not end where hardly anything falls between the bounds.
  const double below = (options.low - options.mean) / options.deviation;
  const double above = (options.high - options.mean) / options.deviation;
  const double share = 0.5 * (std::erf(above / std::sqrt(2.0)) - std::erf(below / std::sqrt(2.0)));
  LOCKSTEP_CHECK(share > 1e-3, InvalidArgument, "trunc_normal_: only ", share,
                 " of the normal distribution lies within [", options.low, ", ", options.high, "]");
  if (is_left_out) return tensor;
  const NoGradGuard no_recording;
  const Tensor result = empty(tensor.shape(), {.dtype = DType::f64});
  std::vector<double> pool;
  for (double& element : result.flat<double>()) {
    do {
      if (pool.empty())
        pool = randn({result.numel()}, {.dtype = DType::f64}, generator).to_vector<double>();
      element = options.mean + options.deviation * pool.back();
      pool.pop_back();
    } while (element < options.low || element > options.high);
  }
  return tensor.copy_(result);
}

Fans fans_of(const Tensor& weight) {
  LOCKSTEP_CHECK(weight.dim() >= 2, InvalidArgument, "a weight of shape ", weight.shape(),
                 " has no fans; it needs two dimensions, [out, in, ...]");
  std::int64_t field = 1;
  for (int i = 2; i < weight.dim(); ++i) field *= weight.size(i);
  return {weight.size(1) * field, weight.size(0) * field};
}

Tensor xavier_uniform_(Tensor tensor, double gain, Generator& generator) {
  const double deviation = xavier_deviation(tensor, gain);
  return centred_uniform(std::move(tensor), deviation, generator);
}

Tensor xavier_normal_(Tensor tensor, double gain, Generator& generator) {
  const double deviation = xavier_deviation(tensor, gain);
  return normal_(std::move(tensor), 0.0, deviation, generator);
}

Tensor kaiming_uniform_(Tensor tensor, Kaiming options, Generator& generator) {
  const double deviation = kaiming_deviation(tensor, options);
  return centred_uniform(std::move(tensor), deviation, generator);
}

Tensor kaiming_normal_(Tensor tensor, Kaiming options, Generator& generator) {
  const double deviation = kaiming_deviation(tensor, options);
  return normal_(std::move(tensor), 0.0, deviation, generator);
}

Tensor layer_weight(const Shape& shape, TensorOptions options) {
  // Slope sqrt(5) makes the bound 1 / sqrt(fan in): what PyTorch has always started with.
  return kaiming_uniform_(empty(shape, options), {.slope = std::sqrt(5.0)});
}

Tensor layer_bias(const Tensor& weight, bool wanted) {
  return wanted ? bias_of_size(weight, weight.size(0)) : Tensor();
}

Tensor bias_of_size(const Tensor& weight, std::int64_t size) {
  const std::int64_t fan = fans_of(weight).in;
  const double bound = fan > 0 ? 1.0 / std::sqrt(static_cast<double>(fan)) : 0.0;
  return uniform_(empty({size}, weight.options()), -bound, bound);
}

}  // namespace lockstep::nn::init
