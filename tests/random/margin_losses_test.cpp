#include <cmath>
#include <numbers>

#include "lockstep/autograd/ops.hpp"
#include "random/naive.hpp"

// Losses of points, of margins between them, and of distributions, against formulas in double.

namespace lockstep::testing {
namespace {

using ::testing::AssertionResult;

class RandomMargins : public RandomCases {
 protected:
  static double allowed(const RandomCase& c, std::int64_t terms) {
    return 16 * sum_tolerance(c.setting().dtype, static_cast<double>(terms));
  }

  /// Rows of points.
  struct Points {
    explicit Points(RandomCase& c)
        : shape{c.integer(1, 9), c.integer(1, 30)},
          a(c.tensor(shape)),
          b(c.tensor(shape)),
          far(c.tensor(shape, {2, 3})) {}
    std::int64_t rows() const { return shape[0]; }

    Shape shape;
    RandomTensor a, b, far;
  };

  /// The p-norm of the distance of two rows.
  static double distance(const RandomTensor& a, const RandomTensor& b, std::int64_t row, double p,
                         double eps) {
    const std::int64_t length = a.shape()[1];
    double sum = 0;
    for (std::int64_t i = row * length; i < (row + 1) * length; ++i)
      sum += std::pow(std::abs(at(a.values, i) - at(b.values, i) + eps), p);
    return std::pow(sum, 1 / p);
  }

  static AssertionResult check_triplets(RandomCase& c) {
    const Points points(c);
    const TripletMarginLossOptions options{.margin = c.choose({0.5, 9.0}),
                                           .p = c.choose({1.0, 2.0, 3.0}),
                                           .eps = 1e-3,
                                           .swap = c.chance(0.5),
                                           .reduction = Reduction::none};
    c.note("p ", options.p, " swap ", options.swap);
    Expected between(points.rows()), losses(points.rows());
    for (std::int64_t i = 0; i < points.rows(); ++i) {
      const auto of = [&](const RandomTensor& a, const RandomTensor& b) {
        return distance(a, b, i, options.p, options.eps);
      };
      between.add(i, of(points.a, points.b));
      double apart = of(points.a, points.far);
      if (options.swap) apart = std::min(apart, of(points.b, points.far));
      const auto place = static_cast<std::size_t>(i);
      losses.values[place] = std::max(0.0, of(points.a, points.b) - apart + options.margin);
      losses.magnitudes[place] = of(points.a, points.b) + apart + options.margin;
    }
    const double most = allowed(c, points.shape[1]);
    if (auto r = agrees(pairwise_distance(points.a, points.b, options.p, options.eps),
                        {points.rows()}, between, most);
        !r)
      return r << ": the distance";
    return agrees(triplet_margin_loss(points.a, points.b, points.far, options), {points.rows()},
                  losses, most);
  }

  static AssertionResult check_cosines(RandomCase& c) {
    const Points points(c);
    const double margin = c.choose({-0.5, 0.0, 0.25});
    const Tensor which = c.contiguous({points.rows()}, DType::i64, {0, 2}).tensor;
    const auto targets = (which - 1).to(cpu).to_vector<std::int64_t>();
    Expected losses(points.rows());
    for (std::int64_t i = 0; i < points.rows(); ++i) {
      double product = 0, of_a = 1e-12, of_b = 1e-12;
      for (std::int64_t j = i * points.shape[1]; j < (i + 1) * points.shape[1]; ++j) {
        const double x = at(points.a.values, j), y = at(points.b.values, j);
        product += x * y, of_a += x * x, of_b += y * y;
      }
      const double cosine = product / std::sqrt(of_a * of_b);
      const auto place = static_cast<std::size_t>(i);
      losses.values[place] = targets[place] == 1    ? 1 - cosine
                             : targets[place] == -1 ? std::max(0.0, cosine - margin)
                                                    : 0;
      losses.magnitudes[place] = 2;
    }
    return agrees(cosine_embedding_loss(points.a, points.b, which - 1, margin, Reduction::none),
                  {points.rows()}, losses, allowed(c, points.shape[1]));
  }

  static AssertionResult check_pairs(RandomCase& c) {
    const Shape shape = c.shape(static_cast<int>(c.integer(0, 3)), 9, 200);
    const RandomTensor a = c.tensor(shape), b = c.tensor(shape), sign = c.tensor(shape, {-1, 1}),
                       rate = c.tensor(shape, {0.2, 3}), count = c.tensor(shape, {0, 6});
    const bool full = c.chance(0.5);
    Expected ranking(numel(shape)), normal(numel(shape)), of_logs(numel(shape)),
        rates(numel(shape));
    const auto put = [](Expected& to, std::size_t i, double value, double size) {
      to.values[i] = value;
      to.magnitudes[i] = std::abs(value) + size;
    };
    for (std::size_t i = 0; i < a.values.size(); ++i) {
      const double x = a.values[i], y = b.values[i], n = count.values[i], r = rate.values[i];
      const double t = sign.values[i] < 0 ? -1 : 1;
      put(ranking, i, std::max(0.0, 0.25 - t * (x - y)), 5);
      const double constant = full ? std::log(2 * std::numbers::pi) / 2 : 0;
      put(normal, i, (std::log(r) + (x - y) * (x - y) / r) / 2 + constant, 10);
      const double stirling =
          full && n > 1 ? n * std::log(n) - n + std::log(2 * std::numbers::pi * n) / 2 : 0;
      put(of_logs, i, std::exp(x) - n * x + stirling, 20);
      put(rates, i, r - n * std::log(r + 1e-8) + stirling, 20);
    }
    const Tensor direction = where(sign.tensor < 0.0, -1, ones({}, sign.tensor.options()));
    const double most = allowed(c, 1);
    if (auto r = agrees(margin_ranking_loss(a, b, direction, 0.25, Reduction::none), shape, ranking,
                        most);
        !r)
      return r << ": ranking";
    if (auto r = agrees(gaussian_nll_loss(a, b, rate, {.full = full, .reduction = Reduction::none}),
                        shape, normal, most);
        !r)
      return r << ": normal";
    if (auto r = agrees(poisson_nll_loss(a, count, {.full = full, .reduction = Reduction::none}),
                        shape, of_logs, most);
        !r)
      return r << ": Poisson by logarithms";
    return agrees(
               poisson_nll_loss(rate, count,
                                {.log_input = false, .full = full, .reduction = Reduction::none}),
               shape, rates, most)
           << ": Poisson";
  }
};

TEST_P(RandomMargins, OfTripletsAgreeWithLoops) { run_cases(40, check_triplets); }
TEST_P(RandomMargins, OfCosinesAgreeWithLoops) { run_cases(40, check_cosines); }
TEST_P(RandomMargins, AndDensitiesAgreeWithFormulas) { run_cases(40, check_pairs); }

INSTANTIATE_TEST_SUITE_P(Backends, RandomMargins,
                         ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16})),
                         setting_name);

}  // namespace
}  // namespace lockstep::testing
