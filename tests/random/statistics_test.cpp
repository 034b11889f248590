#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "lockstep/autograd/ops.hpp"
#include "random/naive.hpp"

// Norms of all orders, distances, medians, quantiles and running products, line by line. Their
// gradients are checked by differences in tests/autograd.

namespace lockstep::testing {
namespace {

using ::testing::AssertionResult;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The p-norm of a line.
double norm_of(const Values& line, double p) {
  double sum = 0, largest = 0, least = infinity;
  for (const double value : line) {
    const double size = std::abs(value);
    sum += p == 0 ? size != 0 : std::pow(size, p);
    largest = std::max(largest, size), least = std::min(least, size);
  }
  if (std::isinf(p)) return p > 0 ? largest : least;
  return p == 0 ? sum : std::pow(sum, 1 / p);
}

class RandomStatistics : public RandomCases {
 protected:
  static double allowed(const RandomCase& c, std::int64_t terms) {
    return sum_tolerance(c.setting().dtype, 4 * static_cast<double>(terms));
  }
  /// Calls `visit(place in the kept shape, line)` for each line along a dimension.
  static void for_each_line(const RandomTensor& x, int d,
                            const std::function<void(std::int64_t, const Values&)>& visit) {
    Shape kept = x.shape();
    kept[d] = 1;
    for (std::int64_t i = 0; i < numel(kept); ++i) {
      Values line;
      Dims index = index_of(i, kept);
      for (index[d] = 0; index[d] < x.shape()[d]; ++index[d])
        line.push_back(at(x.values, position_of(index, x.shape())));
      visit(i, line);
    }
  }
  /// A dimension of the shape; that of the call may count from the end.
  struct Along {
    int d;
    std::int64_t given;
    bool keepdim;
    Shape left;
  };
  static Along some_dim(RandomCase& c, const Shape& shape) {
    const auto d = static_cast<int>(c.integer(0, shape.size() - 1));
    Along result{d, c.chance(0.5) ? d : d - shape.size(), c.chance(0.3), shape};
    if (result.keepdim)
      result.left[d] = 1;
    else
      result.left.erase(d);
    c.note("along ", result.given, result.keepdim ? " kept" : "");
    return result;
  }

  static AssertionResult check_norm(RandomCase& c) {
    const RandomTensor x = c.tensor(c.shape(static_cast<int>(c.integer(1, 4)), 30, 2000, false));
    const Along along = some_dim(c, x.shape());
    const double p = c.choose({0.0, 0.5, 1.0, 2.0, 3.0, -1.0, infinity, -infinity});
    c.note("vector_norm of order ", p);
    Expected y(numel(along.left));
    for_each_line(x, along.d,
                  [&](std::int64_t i, const Values& line) { y.add(i, norm_of(line, p)); });
    return agrees(vector_norm(x, p, along.given, along.keepdim), along.left, y,
                  allowed(c, x.shape()[along.d]));
  }

  static AssertionResult check_distances(RandomCase& c) {
    Shape lead = c.shape(static_cast<int>(c.integer(0, 2)), 3, 6, false);
    Shape of_a = lead, of_b = c.broadcastable(lead), of_y = lead;
    const std::int64_t rows = c.extent(9), columns = c.extent(9), length = c.extent(12);
    for (const auto extent : {rows, length}) of_a.push_back(extent);
    for (const auto extent : {columns, length}) of_b.push_back(extent);
    for (const auto extent : {rows, columns}) of_y.push_back(extent);
    const RandomTensor a = c.tensor(of_a), b = c.tensor(of_b);
    const double p = c.choose({2.0, 2.0, 1.0, 0.0, 3.0, infinity});
    c.note("cdist of order ", p);
    Expected y(numel(of_y));
    for (std::int64_t i = 0; i < numel(of_y); ++i) {
      Dims from_a = index_of(i, of_y), from_b = from_a;
      from_b.erase(of_y.size() - 2);
      Values between;
      for (std::int64_t k = 0; k < length; ++k) {
        from_a.back() = k;
        Dims place = from_b;
        place.push_back(k);
        between.push_back(at(a.values, position_of(from_a, of_a)) -
                          at(b.values, broadcast_position(place, of_b)));
      }
      y.add(i, norm_of(between, p));
      y.magnitudes[static_cast<std::size_t>(i)] += 2;  // of the coordinates
    }
    return agrees(cdist(a, b, p), of_y, y, allowed(c, length));
  }

  static AssertionResult check_median(RandomCase& c) {
    const Shape shape = c.shape(static_cast<int>(c.integer(1, 3)), 20, 1000, false);
    const RandomTensor x = c.tensor(shape, {-9, 9});
    const Along along = some_dim(c, shape);
    Expected y(numel(along.left));
    Values all = x.values;
    for_each_line(x, along.d, [&](std::int64_t i, const Values& line) {
      Values sorted = line;
      std::ranges::sort(sorted);
      y.values[static_cast<std::size_t>(i)] = sorted[(sorted.size() - 1) / 2];
    });
    const auto [values, places] = median(x, along.given, along.keepdim);
    if (auto r = agrees(values, along.left, y, 0); !r) return r;
    const Tensor kept = along.keepdim ? places : places.unsqueeze(along.d);
    if (auto r = agrees(gather(x, along.d, kept).reshape(along.left), along.left, y, 0); !r)
      return r << ": what lies at the place";
    std::ranges::sort(all);
    return agrees(median(x), {}, exactly({all[(all.size() - 1) / 2]}), 0);
  }

  static AssertionResult check_quantile(RandomCase& c) {
    const Shape shape = c.shape(static_cast<int>(c.integer(1, 3)), 20, 1000, false);
    const RandomTensor x = c.tensor(shape);
    const Along along = some_dim(c, shape);
    Values shares(static_cast<std::size_t>(c.integer(1, 3)));
    for (double& share : shares) share = c.choose({0.0, 1.0, 0.5, c.real()});
    Shape lines = along.left;
    const std::int64_t count = numel(lines);
    lines.insert(0, std::ssize(shares));
    Expected y(numel(lines));
    for_each_line(x, along.d, [&](std::int64_t i, Values line) {
      std::ranges::sort(line);
      for (std::size_t k = 0; k < shares.size(); ++k) {
        const double rank = shares[k] * static_cast<double>(line.size() - 1);
        const double below = line[static_cast<std::size_t>(std::floor(rank))];
        const double above = line[static_cast<std::size_t>(std::ceil(rank))];
        const auto place = static_cast<std::int64_t>(k) * count + i;
        y.values[static_cast<std::size_t>(place)] =
            below + (rank - std::floor(rank)) * (above - below);
        y.magnitudes[static_cast<std::size_t>(place)] = std::abs(below) + std::abs(above);
      }
    });
    const Tensor q = from_span<double>(shares, {std::ssize(shares)}).to(c.setting().place.device);
    if (auto r = agrees(quantile(x, q, along.given, along.keepdim), lines, y, allowed(c, 2)); !r)
      return r;
    Expected first(count);
    std::copy_n(y.values.begin(), count, first.values.begin());
    std::copy_n(y.magnitudes.begin(), count, first.magnitudes.begin());
    return agrees(quantile(x, shares[0], along.given, along.keepdim), along.left, first,
                  allowed(c, 2));
  }

  static AssertionResult check_products(RandomCase& c) {
    const Shape shape = c.shape(static_cast<int>(c.integer(1, 3)), 40, 1000);
    const RandomTensor x = c.tensor(shape, {-1.2, 1.2});
    const auto d = static_cast<int>(c.integer(0, shape.size() - 1));
    c.note("cumprod along ", d);
    Expected y(numel(shape));
    for (std::int64_t i = 0; i < numel(shape); ++i) {
      Dims index = index_of(i, shape);
      double product = 1;
      for (auto left = index[d]; left >= 0; --left) {
        index[d] = left;
        product *= at(x.values, position_of(index, shape));
      }
      y.add(i, product);
    }
    return agrees(cumprod(x, c.chance(0.5) ? d : d - shape.size()), shape, y, allowed(c, shape[d]));
  }
};

TEST_P(RandomStatistics, NormsAgreeWithLoops) { run_cases(80, check_norm); }
TEST_P(RandomStatistics, DistancesAgreeWithLoops) { run_cases(60, check_distances); }
TEST_P(RandomStatistics, MediansAreInTheMiddle) { run_cases(60, check_median); }
TEST_P(RandomStatistics, QuantilesAgreeWithSortedLines) { run_cases(60, check_quantile); }
TEST_P(RandomStatistics, RunningProductsAgreeWithLoops) { run_cases(60, check_products); }

INSTANTIATE_TEST_SUITE_P(Backends, RandomStatistics, ::testing::ValuesIn(settings(floating)),
                         setting_name);

}  // namespace
}  // namespace lockstep::testing
