#include <cmath>
#include <limits>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/compare.hpp"
#include "random/naive.hpp"

// Ops that are composed of others, against their formulas. Their gradients are those of the others;
// checks of them by differences are in tests/autograd.

namespace lockstep::testing {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

class RandomComposed : public RandomCases {
 protected:
  /// Several roundings of the dtype, beside those of sums.
  static double allowed(const RandomCase& c, std::int64_t terms) {
    const DType dtype = c.setting().dtype;
    return sum_tolerance(dtype, static_cast<double>(terms)) + 8 * test::rounding(dtype);
  }

  /// The p-norm of the line along a dimension on which an element lies.
  static double norm_at(const RandomTensor& x, double p, Dims index, int d) {
    double sum = 0, largest = 0;
    for (index[d] = 0; index[d] < x.shape()[d]; ++index[d]) {
      const double size = std::abs(at(x.values, position_of(index, x.shape())));
      sum += std::pow(size, p);
      largest = std::max(largest, size);
    }
    return std::isinf(p) ? largest : std::pow(sum, 1 / p);
  }

  static AssertionResult check_normalize(RandomCase& c) {
    const RandomTensor x = c.tensor(c.shape(static_cast<int>(c.integer(1, 3)), 20, 1000));
    const auto d = static_cast<int>(c.integer(0, x.shape().size() - 1));
    const double eps = c.choose({1e-12, 0.5});
    const double p = c.choose({2.0, 2.0, 1.0, 3.0, std::numeric_limits<double>::infinity()});
    c.note("normalize ", d, " eps ", eps, " p ", p);
    Expected y(numel(x.shape()));
    for (std::int64_t i = 0; i < numel(x.shape()); ++i)
      y.add(i, at(x.values, i) / std::max(norm_at(x, p, index_of(i, x.shape()), d), eps));
    return agrees(normalize(x, p, d - (c.chance(0.5) ? x.shape().size() : 0), eps), x.shape(), y,
                  allowed(c, x.shape()[d]));
  }

  static AssertionResult check_cosine(RandomCase& c) {
    Shape shape = c.shape(static_cast<int>(c.integer(1, 3)), 12, 500, false);
    const auto d = static_cast<int>(c.integer(0, shape.size() - 1));
    const RandomTensor a = c.tensor(shape), b = c.tensor(c.broadcastable(shape));
    c.note("cosine_similarity along ", d);
    Shape left = shape;
    left.erase(d);
    Expected y(numel(left));
    for (std::int64_t i = 0; i < numel(left); ++i) {
      Dims index = index_of(i, left);
      index.insert(d, 0);
      double product = 0, size = 0, squares_a = 0, squares_b = 0;
      for (; index[d] < shape[d]; ++index[d]) {
        const double x = at(a.values, position_of(index, shape));
        const double z = at(b.values, broadcast_position(index, b.shape()));
        product += x * z, size += std::abs(x * z), squares_a += x * x, squares_b += z * z;
      }
      const double lengths =
          std::max(std::sqrt(squares_a), 1e-8) * std::max(std::sqrt(squares_b), 1e-8);
      y.values[static_cast<std::size_t>(i)] = product / lengths;
      y.magnitudes[static_cast<std::size_t>(i)] = size / lengths;
    }
    const bool swaps = c.chance(0.5);
    return agrees(swaps ? cosine_similarity(b, a, d) : cosine_similarity(a, b, d), left, y,
                  allowed(c, shape[d]));
  }

  static AssertionResult check_meshgrid(RandomCase& c) {
    std::vector<RandomTensor> axes;
    std::vector<Tensor> tensors;
    Shape shape;
    for (std::int64_t i = c.integer(1, 3); i > 0; --i) {
      axes.push_back(c.tensor(c.chance(0.1) ? Shape{} : Shape{c.extent(7)}));
      tensors.push_back(axes.back());
      shape.push_back(tensors.back().numel());
    }
    const bool swaps = c.chance(0.5) && axes.size() > 1;
    if (swaps) std::swap(shape[0], shape[1]);
    const std::vector<Tensor> grid = meshgrid(tensors, swaps ? "xy" : "ij");
    for (std::size_t k = 0; k < axes.size(); ++k) {
      const auto place = static_cast<int>(swaps && k < 2 ? 1 - k : k);
      Values values;
      for (std::int64_t i = 0; i < numel(shape); ++i)
        values.push_back(at(axes[k].values, index_of(i, shape)[place]));
      if (auto r = agrees(grid[k], shape, exactly(values), 0); !r) return r << ": grid " << k;
    }
    return AssertionSuccess();
  }

  static AssertionResult check_nan_to_num(RandomCase& c) {
    RandomTensor x = c.tensor(c.shape(2, 9, 60));
    const double infinity = std::numeric_limits<double>::infinity();
    const Shape shape = x.shape();
    const Tensor which = c.contiguous(shape, DType::i64, {0, 8}).tensor;
    Tensor mixed = where(which == 0, std::nan(""), x.tensor);
    mixed = where(which == 1, infinity, where(which == 2, -infinity, mixed)).detach();
    mixed.set_requires_grad();
    const std::vector<std::int64_t> kinds = which.to(cpu).to_vector<std::int64_t>();
    Values values, slopes;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      values.push_back(kinds[i] == 0 ? 0.25 : kinds[i] == 1 ? 2 : kinds[i] == 2 ? -4 : x.values[i]);
      slopes.push_back(kinds[i] < 3 ? 0 : 1);
    }
    const Tensor y = nan_to_num(mixed, 0.25, 2, -4);
    if (auto r = agrees(y, shape, exactly(values), 0); !r) return r;
    sum(y).backward();
    if (auto r = agrees(mixed.grad(), shape, exactly(slopes), 0); !r) return r << ": the gradient";
    return all(isfinite(nan_to_num(mixed.detach()))).to(cpu).to(DType::i64).item() == 1
               ? AssertionSuccess()
               : AssertionFailure() << "what is there by default is not finite";
  }

  static AssertionResult check_prelu(RandomCase& c) {
    const RandomTensor x = c.tensor(c.shape(static_cast<int>(c.integer(1, 4)), 9, 500));
    const bool of_channels = x.shape().size() > 1 && c.chance(0.7);
    const RandomTensor slopes = c.tensor({of_channels ? x.shape()[1] : 1});
    Expected y(numel(x.shape()));
    for (std::int64_t i = 0; i < numel(x.shape()); ++i) {
      const double value = at(x.values, i);
      const std::int64_t channel = of_channels ? index_of(i, x.shape())[1] : 0;
      y.add(i, value > 0 ? value : value * at(slopes.values, channel));
    }
    return agrees(prelu(x, slopes), x.shape(), y, allowed(c, 1));
  }

  /// Computed in f32 at least and rounded once.
  static double once(const RandomCase& c) {
    const DType dtype = c.setting().dtype;
    return 1.01 * test::rounding(dtype) + (is_16_bit(dtype) ? 0 : 16 * test::rounding(dtype));
  }

  static AssertionResult check_activations(RandomCase& c) {
    const RandomTensor x = c.tensor(c.shape(static_cast<int>(c.integer(1, 4)), 9, 500), {-3, 3});
    const double alpha = c.choose({1.0, 0.5, 3.0});
    Expected of_selu(numel(x.shape())), of_celu(numel(x.shape())), of_logs(numel(x.shape())),
        softened(numel(x.shape()));
    for (std::int64_t i = 0; i < numel(x.shape()); ++i) {
      const double value = at(x.values, i), grown = std::expm1(value);
      of_selu.add(i, 1.0507009873554805 * (value > 0 ? value : 1.6732632423543772 * grown));
      of_celu.add(i, value > 0 ? value : alpha * std::expm1(value / alpha));
      of_logs.add(i, -std::log1p(std::exp(-value)));
      const double scaled = value * alpha;
      softened.add(i, scaled > 2 ? value : std::log1p(std::exp(scaled)) / alpha);
    }
    if (auto r = agrees(logsigmoid(x), x.shape(), of_logs, once(c)); !r) return r << ": logsigmoid";
    if (auto r = agrees(scaled_softplus(x, alpha, 2), x.shape(), softened, once(c)); !r)
      return r << ": softplus of beta " << alpha;
    if (auto r = agrees(selu(x), x.shape(), of_selu, once(c)); !r) return r << ": selu";
    return agrees(celu(x, alpha), x.shape(), of_celu, once(c)) << ": celu of alpha " << alpha;
  }

  static AssertionResult check_glu(RandomCase& c) {
    Shape half = c.shape(static_cast<int>(c.integer(1, 4)), 9, 300), shape = half;
    const auto d = static_cast<int>(c.integer(0, half.size() - 1));
    shape[d] *= 2;
    const RandomTensor x = c.tensor(shape, {-3, 3});
    c.note("glu along ", d);
    Expected y(numel(half));
    for (std::int64_t i = 0; i < numel(half); ++i) {
      Dims index = index_of(i, half);
      const double value = at(x.values, position_of(index, shape));
      index[d] += half[d];
      y.add(i, value / (1 + std::exp(-at(x.values, position_of(index, shape)))));
    }
    return agrees(glu(x, c.chance(0.5) ? d : d - half.size()), half, y, once(c));
  }

  static AssertionResult check_lerp(RandomCase& c) {
    const Shape shape = c.shape(static_cast<int>(c.integer(1, 3)), 9, 500);
    const RandomTensor a = c.tensor(shape), b = c.tensor(c.broadcastable(shape)),
                       weight = c.tensor(c.broadcastable(shape), {0, 1});
    const double number = c.choose({0.0, 1.0, 0.3, 0.8});
    Expected y(numel(shape)), by_number(numel(shape));
    for (std::int64_t i = 0; i < numel(shape); ++i) {
      const Dims index = index_of(i, shape);
      const double x = at(a.values, i), z = at(b.values, broadcast_position(index, b.shape()));
      const double w = at(weight.values, broadcast_position(index, weight.shape()));
      const auto place = static_cast<std::size_t>(i);
      y.values[place] = x + w * (z - x);
      by_number.values[place] = x + number * (z - x);
      y.magnitudes[place] = by_number.magnitudes[place] = std::abs(x) + std::abs(z);
    }
    if (auto r = agrees(lerp(a, b, weight), shape, y, once(c)); !r) return r;
    return agrees(lerp(a, b, number), shape, by_number, number == 0 || number == 1 ? 0 : once(c))
           << ": lerp by " << number;
  }

  static AssertionResult check_addc(RandomCase& c) {
    const Shape shape = c.shape(static_cast<int>(c.integer(1, 3)), 9, 500);
    const RandomTensor x = c.tensor(shape), a = c.tensor(c.broadcastable(shape)),
                       b = c.tensor(c.broadcastable(shape), {0.5, 2});
    const double factor = c.choose({1.0, -0.5});
    Expected multiplied(numel(shape)), divided(numel(shape));
    for (std::int64_t i = 0; i < numel(shape); ++i) {
      const Dims index = index_of(i, shape);
      const double left = at(a.values, broadcast_position(index, a.shape())),
                   right = at(b.values, broadcast_position(index, b.shape()));
      const auto put = [&](Expected& to, double term) {
        to.values[static_cast<std::size_t>(i)] = at(x.values, i) + factor * term;
        to.magnitudes[static_cast<std::size_t>(i)] = std::abs(at(x.values, i)) + std::abs(term);
      };
      put(multiplied, left * right);
      put(divided, left / right);
    }
    if (auto r = agrees(addcmul(x, a, b, factor), shape, multiplied, once(c)); !r)
      return r << ": addcmul";
    return agrees(addcdiv(x, a, b, factor), shape, divided, once(c)) << ": addcdiv";
  }

  /// Sequences are images of one row.
  static AssertionResult check_pools(RandomCase& c) {
    const std::int64_t kernel = c.integer(1, 4), padding = c.integer(0, kernel / 2);
    const Pool1dOptions options{.kernel = kernel,
                                .stride = c.integer(0, 3),
                                .padding = padding,
                                .ceil_mode = c.chance(0.5),
                                .count_include_pad = c.chance(0.5)};
    const std::int64_t stride = options.stride ? options.stride : kernel;
    const RandomTensor x = c.tensor({c.integer(1, 2), c.integer(1, 3), c.integer(4, 13)});
    const Tensor images = x.tensor.unsqueeze(2);
    const Pool2dOptions of_images{.kernel = {1, kernel},
                                  .stride = {1, stride},
                                  .padding = {0, padding},
                                  .ceil_mode = options.ceil_mode,
                                  .count_include_pad = options.count_include_pad};
    const auto same = [](const Tensor& a, const Tensor& b) { return equal(a.to(cpu), b.to(cpu)); };
    const std::int64_t length = c.integer(1, 4);
    return same(max_pool1d(x, options), max_pool2d(images, of_images).squeeze(2)) &&
                   same(avg_pool1d(x, options), avg_pool2d(images, of_images).squeeze(2)) &&
                   same(adaptive_avg_pool1d(x, length),
                        adaptive_avg_pool2d(images, {1, length}).squeeze(2))
               ? AssertionSuccess()
               : AssertionFailure() << "pools of sequences differ from those of images of one row";
  }
};

TEST_P(RandomComposed, NormalizeAgreesWithLoops) { run_cases(60, check_normalize); }
TEST_P(RandomComposed, CosinesAgreeWithLoops) { run_cases(60, check_cosine); }
TEST_P(RandomComposed, GridsHoldTheirAxes) { run_cases(40, check_meshgrid); }
TEST_P(RandomComposed, WhatIsNoNumberIsReplaced) { run_cases(40, check_nan_to_num); }
TEST_P(RandomComposed, LearnedSlopesAgreeWithLoops) { run_cases(40, check_prelu); }
TEST_P(RandomComposed, ActivationsAgreeWithFormulas) { run_cases(40, check_activations); }
TEST_P(RandomComposed, HalvesGateHalves) { run_cases(40, check_glu); }
TEST_P(RandomComposed, WeightedMeansAgreeWithLoops) { run_cases(40, check_lerp); }
TEST_P(RandomComposed, ProductsAndQuotientsAreAdded) { run_cases(40, check_addc); }
TEST_P(RandomComposed, SequencesPoolAsImages) { run_cases(40, check_pools); }

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomComposed,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
