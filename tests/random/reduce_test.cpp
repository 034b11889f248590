#include "lockstep/autograd/ops/reduce.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/sort.hpp"
#include "random/naive.hpp"

// Reductions over random dimensions of random shapes and memory layouts, against loops in double.

namespace lockstep::testing {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// The elements that each output of a reduction stands for, by position.
struct Groups {
  Shape kept, shape;
  std::vector<std::vector<std::int64_t>> members;

  Groups(const Shape& from, const Dims& dims, bool keepdim)
      : kept(kept_shape(from, dims)),
        shape(keepdim ? kept : dropped_shape(from, dims)),
        members(static_cast<std::size_t>(numel(kept))) {
    for (std::int64_t i = 0; i < numel(from); ++i)
      members[static_cast<std::size_t>(broadcast_position(index_of(i, from), kept))].push_back(i);
  }
  std::int64_t largest() const {
    std::size_t most = 0;
    for (const auto& group : members) most = std::max(most, group.size());
    return static_cast<std::int64_t>(most);
  }
};

/// One reduction: its value over a group, what errors are relative to, and the gradient of each
/// member.
struct NaiveReduction {
  const char* name;
  Tensor (*call)(const Tensor& x, const Dims& dims, bool keepdim);
  double (*value)(const Values& x);
  double (*magnitude)(const Values& x);
  double (*slope)(const Values& x, std::size_t i);
  bool of_nothing;  ///< has a value without elements
};

double sum_of(const Values& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
double mean_of(const Values& x) { return sum_of(x) / static_cast<double>(x.size()); }
double size_of_terms(const Values& x) {
  double total = 0;
  for (const double value : x) total += std::abs(value);
  return total;
}
double mean_size(const Values& x) {
  return x.empty() ? 0 : size_of_terms(x) / static_cast<double>(x.size());
}
double norm_of(const Values& x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares);
}
double variance_of(const Values& x) {
  const double mean = mean_of(x);
  double squares = 0;
  for (const double value : x) squares += (value - mean) * (value - mean);
  return squares / std::max(static_cast<double>(x.size()) - 1, 0.0);
}
double logsumexp_of(const Values& x) {
  double sum = 0;
  for (const double value : x) sum += std::exp(value);
  return std::log(sum);
}
double product_of(const Values& x) {
  return std::accumulate(x.begin(), x.end(), 1.0, std::multiplies<>());
}
/// The product of all but one.
double others_of(Values x, std::size_t i) {
  x[i] = 1;
  return product_of(x);
}
double largest_of(const Values& x) { return *std::ranges::max_element(x); }
double smallest_of(const Values& x) { return *std::ranges::min_element(x); }
double share_of(const Values& x, std::size_t i, double extreme) {
  return x[i] == extreme ? 1.0 / static_cast<double>(std::ranges::count(x, extreme)) : 0.0;
}

constexpr NaiveReduction reductions[] = {
    {"sum", sum, sum_of, size_of_terms, [](const Values&, std::size_t) { return 1.0; }, true},
    {"mean", mean, mean_of, mean_size,
     [](const Values& x, std::size_t) { return 1.0 / static_cast<double>(x.size()); }, true},
    {"prod", prod, product_of, [](const Values& x) { return std::abs(product_of(x)); },
     [](const Values& x, std::size_t i) { return others_of(x, i); }, true},
    {"norm", norm, norm_of, norm_of,
     [](const Values& x, std::size_t i) { return norm_of(x) == 0 ? 0 : x[i] / norm_of(x); }, true},
    {"var", [](const Tensor& x, const Dims& dims, bool keep) { return var(x, dims, 1, keep); },
     variance_of, [](const Values& x) { return variance_of(x) + 1; },
     [](const Values& x, std::size_t i) {
       return 2 * (x[i] - mean_of(x)) / (static_cast<double>(x.size()) - 1);
     },
     true},
    {"std", [](const Tensor& x, const Dims& dims, bool keep) { return std(x, dims, 1, keep); },
     [](const Values& x) { return std::sqrt(variance_of(x)); },
     [](const Values& x) { return std::sqrt(variance_of(x)) + 1; },
     [](const Values& x, std::size_t i) {
       return (x[i] - mean_of(x)) / (static_cast<double>(x.size() - 1) * std::sqrt(variance_of(x)));
     },
     true},
    {"logsumexp", logsumexp, logsumexp_of,
     [](const Values& x) { return x.empty() ? 1.0 : 2 + logsumexp_of(x); },
     [](const Values& x, std::size_t i) { return std::exp(x[i] - logsumexp_of(x)); }, true},
    {"amax", amax, largest_of, [](const Values&) { return 0.0; },
     [](const Values& x, std::size_t i) { return share_of(x, i, largest_of(x)); }, false},
    {"amin", amin, smallest_of, [](const Values&) { return 0.0; },
     [](const Values& x, std::size_t i) { return share_of(x, i, smallest_of(x)); }, false},
};

Values pick(const Values& from, const std::vector<std::int64_t>& positions) {
  Values values;
  for (const auto position : positions) values.push_back(at(from, position));
  return values;
}

class RandomReduce : public RandomCases {
 protected:
  static AssertionResult check_case(RandomCase& c) {
    const NaiveReduction& op = reductions[c.integer(0, std::size(reductions) - 1)];
    const Shape from = c.shape(static_cast<int>(c.integer(0, 4)), 30, 1500);
    const Dims dims = some_dims(c, from.size());
    const bool keepdim = c.chance(0.5);
    c.note(op.name, " over ", dims, keepdim ? " kept" : "");
    const RandomTensor x = c.tensor(from);
    const Groups groups(from, dims, keepdim);
    const auto n = static_cast<std::int64_t>(groups.members.size());
    if (reduces_nothing(from, dims) && !op.of_nothing) return refuses(op, x, dims, keepdim);
    // A variance of one element is 0 / 0, and its gradient depends on the order of operations; the
    // root's slope is infinite where all elements are equal.
    const bool is_std = std::string_view("std") == op.name;
    bool alone = (is_std || std::string_view("var") == op.name) && groups.largest() == 1;
    const RandomTensor dy = c.tensor(groups.shape);
    Expected y(n), dx(numel(from));
    for (std::size_t i = 0; i < groups.members.size(); ++i) {
      const Values members = pick(x.values, groups.members[i]);
      y.values[i] = op.value(members);
      y.magnitudes[i] = op.magnitude(members);
      alone |= is_std && y.values[i] < 0.1;
      for (std::size_t k = 0; k < members.size(); ++k) {
        const auto to = static_cast<std::size_t>(groups.members[i][k]);
        dx.values[to] = dy.values[i] * op.slope(members, k);
        dx.magnitudes[to] = std::abs(dx.values[to]) + held(c) * std::abs(dy.values[i]);
      }
    }
    const double allowed = sum_tolerance(c.setting().dtype, static_cast<double>(groups.largest()));
    const Tensor input = leaf(x), output = op.call(input, dims, keepdim);
    if (auto r = agrees(output, groups.shape, y, allowed); !r) return r;
    if (alone) return AssertionSuccess();
    output.backward(dy);
    if (auto r = agrees(input.grad(), from, dx, 8 * allowed); !r) return r << ": the gradient";
    return AssertionSuccess();
  }

 private:
  /// True where a group has no elements, or would have none if there were groups.
  static bool reduces_nothing(const Shape& from, const Dims& dims) {
    const Shape kept = kept_shape(from, dims);
    for (int i = 0; i < from.size(); ++i)
      if (from[i] == 0 && kept[i] == 1) return true;
    return false;
  }
  /// What sums of f32 lose, in units of the dtype's own rounding.
  static double held(const RandomCase& c) {
    return held_rounding(c.setting().dtype) / test::rounding(c.setting().dtype);
  }
  static AssertionResult refuses(const NaiveReduction& op, const RandomTensor& x, const Dims& dims,
                                 bool keepdim) {
    try {
      op.call(x, dims, keepdim);
    } catch (const InvalidArgument&) {
      return AssertionSuccess();
    }
    return AssertionFailure() << op.name << " of nothing was not refused";
  }
};

TEST_P(RandomReduce, AgreesWithLoops) { run_cases(250, check_case); }
TEST_P(RandomReduce, SlowAgreesWithLoops) { run_cases(25000, check_case); }

constexpr auto numeric = {DType::f64, DType::f32, DType::bf16, DType::f16,
                          DType::i64, DType::i32, DType::u8};
INSTANTIATE_TEST_SUITE_P(Backends, RandomReduce, ::testing::ValuesIn(settings(floating)),
                         setting_name);

/// Whether any element of each group, and whether all, differ from 0; any dtype.
AssertionResult check_truth(RandomCase& c, const Shape& from, const Dims& dims, bool keepdim) {
  RandomTensor x = c.tensor(from, {0, c.chance(0.5) ? 1.2 : 9.0});
  if (is_floating(c.setting().dtype)) x.tensor = trunc(x.tensor);
  for (double& value : x.values) value = std::trunc(value);
  const Groups groups(from, dims, keepdim);
  Values some, every;
  for (const auto& group : groups.members) {
    const Values members = pick(x.values, group);
    const auto zeros = std::ranges::count(members, 0.0);
    some.push_back(zeros < static_cast<std::ptrdiff_t>(members.size()));
    every.push_back(zeros == 0);
  }
  if (auto r = agrees(any(x, dims, keepdim), groups.shape, exactly(some), 0); !r)
    return r << ": any";
  return agrees(all(x, dims, keepdim), groups.shape, exactly(every), 0) << ": all";
}

/// Sums of integers, of any dtype and of bool.
class RandomCount : public RandomCases {
 protected:
  static AssertionResult check_case(RandomCase& c) {
    const Shape from = c.shape(static_cast<int>(c.integer(0, 4)), 30, 3000);
    const Dims dims = some_dims(c, from.size());
    const bool keepdim = c.chance(0.5);
    c.note("over ", dims);
    const bool truth = c.setting().dtype == DType::boolean;
    const RandomTensor x = c.tensor(from, {0, truth ? 1.0 : 250.0});
    const Groups groups(from, dims, keepdim);
    Values y;
    for (const auto& group : groups.members) y.push_back(sum_of(pick(x.values, group)));
    const Tensor total = sum(x, dims, keepdim);
    if (total.dtype() != DType::i64) return AssertionFailure() << "a sum in " << total.dtype();
    if (auto r = agrees(total, groups.shape, exactly(y), 0); !r) return r;
    if (!truth && x.tensor.numel() > 0) {
      Values largest, smallest;
      for (const auto& group : groups.members) {
        largest.push_back(std::ranges::max(pick(x.values, group)));
        smallest.push_back(std::ranges::min(pick(x.values, group)));
      }
      if (auto r = agrees(amax(x, dims, keepdim), groups.shape, exactly(largest), 0); !r)
        return r << ": amax";
      if (auto r = agrees(amin(x, dims, keepdim), groups.shape, exactly(smallest), 0); !r)
        return r << ": amin";
    }
    return check_truth(c, from, dims, keepdim);
  }
};

TEST_P(RandomCount, AgreesWithLoops) { run_cases(60, check_case); }
TEST_P(RandomCount, SlowAgreesWithLoops) { run_cases(6000, check_case); }

INSTANTIATE_TEST_SUITE_P(Backends, RandomCount,
                         ::testing::ValuesIn(settings({DType::i64, DType::i32, DType::u8,
                                                       DType::boolean})),
                         setting_name);

/// Ops along one dimension: running sums, positions of extremes, the k largest.
class RandomLines : public RandomCases {
 protected:
  static AssertionResult check_case(RandomCase& c) {
    const Shape shape = c.shape(static_cast<int>(c.integer(1, 4)), 30, 1500);
    const std::int64_t dim = c.integer(0, shape.size() - 1);
    c.note("along ", dim);
    // Few different values, so that some are equal.
    const RandomTensor x = c.tensor(shape, c.chance(0.5) ? Range{0, 4} : Range{0, 100});
    const Groups lines(shape, {dim}, true);
    if (auto r = check_cumsum(c, x, dim, lines); !r) return r << ": cumsum";
    if (auto r = check_truth(c, shape, {dim}, c.chance(0.5)); !r) return r;
    if (shape[static_cast<int>(dim)] == 0) return AssertionSuccess();
    if (auto r = check_search(c, x, dim); !r) return r << ": searchsorted";
    return check_order(c, x, dim, lines);
  }

 private:
  static AssertionResult check_cumsum(RandomCase& c, const RandomTensor& x, std::int64_t dim,
                                      const Groups& lines) {
    const DType dtype = c.setting().dtype;
    Expected y(x.tensor.numel());
    for (const auto& line : lines.members) {
      double total = 0;
      for (const auto position : line) y.add(position, total += at(x.values, position));
    }
    const Tensor sums = cumsum(x, dim);
    if (sums.dtype() != (is_floating(dtype) ? dtype : DType::i64))
      return AssertionFailure() << "running sums in " << sums.dtype();
    const double terms = static_cast<double>(lines.largest());
    return agrees(sums, x.shape(), y, is_floating(dtype) ? sum_tolerance(dtype, terms) : 0);
  }
  /// Looks values up in sorted lines, or in the first of them.
  static AssertionResult check_search(RandomCase& c, const RandomTensor& x, std::int64_t dim) {
    Tensor sorted = sort(x.tensor.transpose(dim, -1), -1).first;
    const std::int64_t length = sorted.size(-1);
    Shape lines = sorted.shape(), shape = lines;
    lines.back() = 1;
    const bool single = numel(lines) > 0 && c.chance(0.3);
    if (single) sorted = sorted.reshape({numel(lines), length})[0];
    shape.back() = c.extent(20);
    const bool right = c.chance(0.5);
    const RandomTensor values = c.tensor(shape, {0, 100});
    const Values all = sorted.to(cpu).to(DType::f64).contiguous().to_vector<double>();
    Values places;
    for (std::int64_t i = 0; i < numel(shape); ++i) {
      Dims index = index_of(i, shape);
      index.back() = 0;
      const auto line = all.begin() + (single ? 0 : position_of(index, lines) * length);
      const double value = at(values.values, i);
      const auto place = right ? std::upper_bound(line, line + length, value)
                               : std::lower_bound(line, line + length, value);
      places.push_back(static_cast<double>(place - line));
    }
    return agrees(searchsorted(sorted, values, right), shape, exactly(places), 0);
  }
  static AssertionResult check_unique(const RandomTensor& x) {
    std::map<double, std::int64_t> found;
    for (const double value : x.values) ++found[value];
    Values values, counts, places;
    for (const auto& [value, count] : found) {
      values.push_back(value);
      counts.push_back(static_cast<double>(count));
    }
    for (const double value : x.values)
      places.push_back(static_cast<double>(std::distance(found.begin(), found.find(value))));
    const Shape of_values{static_cast<std::int64_t>(values.size())};
    const Unique unique_ones = unique(x);
    if (auto r = agrees(unique_ones.values, of_values, exactly(values), 0); !r)
      return r << ": unique";
    if (auto r = agrees(unique_ones.counts, of_values, exactly(counts), 0); !r)
      return r << ": counts of unique";
    return agrees(unique_ones.inverse, x.shape(), exactly(places), 0) << ": inverse of unique";
  }
  static AssertionResult check_sort(RandomCase& c, const RandomTensor& x, std::int64_t dim,
                                    const Groups& lines) {
    const bool descending = c.chance(0.5);
    c.note(descending ? "falling" : "rising");
    Values sorted(x.values.size()), places(x.values.size());
    for (const auto& line : lines.members) {
      const Values members = pick(x.values, line);
      std::vector<std::size_t> order(members.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
        return descending ? members[a] > members[b] : members[a] < members[b];
      });
      for (std::size_t i = 0; i < order.size(); ++i) {
        sorted[static_cast<std::size_t>(line[i])] = members[order[i]];
        places[static_cast<std::size_t>(line[i])] = static_cast<double>(order[i]);
      }
    }
    const auto [values, positions] = sort(x, dim, descending);
    if (auto r = agrees(values, x.shape(), exactly(sorted), 0); !r) return r << ": sort";
    return agrees(positions, x.shape(), exactly(places), 0) << ": positions of sort";
  }
  static AssertionResult check_order(RandomCase& c, const RandomTensor& x, std::int64_t dim,
                                     const Groups& lines) {
    const std::int64_t length = x.shape()[static_cast<int>(dim)], k = c.integer(0, length);
    c.note("k ", k);
    Shape best = x.shape();
    best[static_cast<int>(dim)] = k;
    Values first_largest, first_smallest, values(static_cast<std::size_t>(numel(best)));
    Values places(values.size());
    for (const auto& line : lines.members) {
      const Values members = pick(x.values, line);
      std::vector<std::size_t> order(members.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return members[i]; });
      first_largest.push_back(static_cast<double>(order[0]));
      first_smallest.push_back(
          static_cast<double>(std::ranges::min_element(members) - members.begin()));
      for (std::int64_t i = 0; i < k; ++i) {
        Dims index = index_of(line[0], x.shape());
        index[static_cast<int>(dim)] = i;
        const auto to = static_cast<std::size_t>(position_of(index, best));
        places[to] = static_cast<double>(order[static_cast<std::size_t>(i)]);
        values[to] = members[order[static_cast<std::size_t>(i)]];
      }
    }
    if (auto r = agrees(argmax(x, dim, true), lines.kept, exactly(first_largest), 0); !r)
      return r << ": argmax";
    if (auto r = agrees(max(x, dim, true).second, lines.kept, exactly(first_largest), 0); !r)
      return r << ": position of max";
    if (auto r = agrees(min(x, dim, true).second, lines.kept, exactly(first_smallest), 0); !r)
      return r << ": position of min";
    if (auto r = check_sort(c, x, dim, lines); !r) return r;
    if (auto r = check_unique(x); !r) return r;
    if (auto r = agrees(argsort(x, dim, true).narrow(static_cast<int>(dim), 0, k), best,
                        exactly(places), 0);
        !r)
      return r << ": argsort";
    if (auto r = agrees(argmin(x, dim, true), lines.kept, exactly(first_smallest), 0); !r)
      return r << ": argmin";
    const auto [top, indices] = topk(x, k, dim);
    if (auto r = agrees(top, best, exactly(values), 0); !r) return r << ": topk";
    return agrees(indices, best, exactly(places), 0) << ": positions of topk";
  }
};

TEST_P(RandomLines, AgreeWithLoops) { run_cases(100, check_case); }
TEST_P(RandomLines, SlowAgreeWithLoops) { run_cases(10000, check_case); }

INSTANTIATE_TEST_SUITE_P(Backends, RandomLines, ::testing::ValuesIn(settings(numeric)),
                         setting_name);

}  // namespace
}  // namespace lockstep::testing
