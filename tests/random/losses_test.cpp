#include <numeric>

#include "lockstep/autograd/ops/loss.hpp"
#include "random/naive.hpp"

// Losses that are composed of other ops, on random shapes and memory layouts, against formulas in
// double.

namespace lockstep::testing {
namespace {

using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// What one element's loss is made of.
struct Element {
  double input, target;
  double weight = 1, positive = 1;
};

/// Operands as tensors.
struct Operands {
  Tensor input, target, weight, positive;
  Reduction reduction;
};

/// A loss: its value for one element, and its slopes along input and target.
struct NaiveLoss {
  const char* name;
  Tensor (*call)(const Operands&);
  Range input, target;
  double (*value)(const Element&);
  double (*of_input)(const Element&);
  double (*of_target)(const Element&);
  bool weighted = false, weighs_positive = false;
};

double softplus_of(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double sign_of(double x) { return static_cast<double>((x > 0) - (x < 0)); }

constexpr double delta = 0.75;
double huber_of(double distance) {
  const double size = std::abs(distance);
  return size <= delta ? size * size / 2 : delta * (size - delta / 2);
}
double huber_slope(double distance) { return std::clamp(distance, -delta, delta); }

/// The factor of the positive term.
double positive_of(const Element& e) { return 1 + (e.positive - 1) * e.target; }

const NaiveLoss losses[] = {
    {"mse_loss",
     [](const Operands& o) { return mse_loss(o.input, o.target, o.reduction); },
     {-2, 2},
     {-2, 2},
     [](const Element& e) { return std::pow(e.input - e.target, 2); },
     [](const Element& e) { return 2 * (e.input - e.target); },
     [](const Element& e) { return 2 * (e.target - e.input); }},
    {"l1_loss",
     [](const Operands& o) { return l1_loss(o.input, o.target, o.reduction); },
     {-2, 2},
     {-2, 2},
     [](const Element& e) { return std::abs(e.input - e.target); },
     [](const Element& e) { return sign_of(e.input - e.target); },
     [](const Element& e) { return sign_of(e.target - e.input); }},
    {"huber_loss",
     [](const Operands& o) { return huber_loss(o.input, o.target, delta, o.reduction); },
     {-2, 2},
     {-2, 2},
     [](const Element& e) { return huber_of(e.input - e.target); },
     [](const Element& e) { return huber_slope(e.input - e.target); },
     [](const Element& e) { return huber_slope(e.target - e.input); }},
    {"smooth_l1_loss",
     [](const Operands& o) { return smooth_l1_loss(o.input, o.target, delta, o.reduction); },
     {-2, 2},
     {-2, 2},
     [](const Element& e) { return huber_of(e.input - e.target) / delta; },
     [](const Element& e) { return huber_slope(e.input - e.target) / delta; },
     [](const Element& e) { return huber_slope(e.target - e.input) / delta; }},
    {"kl_div",
     [](const Operands& o) { return kl_div(o.input, o.target, o.reduction); },
     {-4, -0.1},
     {0.05, 1},
     [](const Element& e) { return e.target * (std::log(e.target) - e.input); },
     [](const Element& e) { return -e.target; },
     [](const Element& e) { return std::log(e.target) - e.input + 1; }},
    {"binary_cross_entropy",
     [](const Operands& o) {
       return binary_cross_entropy(o.input, o.target, o.weight, o.reduction);
     },
     {0.05, 0.95},
     {0, 1},
     [](const Element& e) {
       return -e.weight * (e.target * std::log(e.input) + (1 - e.target) * std::log1p(-e.input));
     },
     [](const Element& e) { return e.weight * (e.input - e.target) / (e.input * (1 - e.input)); },
     [](const Element& e) { return e.weight * (std::log1p(-e.input) - std::log(e.input)); },
     true},
    {"binary_cross_entropy_with_logits",
     [](const Operands& o) {
       return binary_cross_entropy_with_logits(o.input, o.target, o.weight, o.positive,
                                               o.reduction);
     },
     {-5, 5},
     {0, 1},
     [](const Element& e) {
       return e.weight * ((1 - e.target) * e.input + positive_of(e) * softplus_of(-e.input));
     },
     [](const Element& e) {
       return e.weight * (1 - e.target - positive_of(e) / (1 + std::exp(e.input)));
     },
     [](const Element& e) {
       return e.weight * ((e.positive - 1) * softplus_of(-e.input) - e.input);
     },
     true,
     true},
};

class RandomLosses : public RandomCases {
 protected:
  static double divisor_of(Reduction reduction, const Shape& shape) {
    if (reduction == Reduction::mean) return static_cast<double>(numel(shape));
    return reduction == Reduction::batch_mean ? static_cast<double>(shape[0]) : 1.0;
  }
  /// Several ops, each of which rounds numbers around 1 to the dtype.
  static double allowed(const RandomCase& c, std::int64_t terms) {
    return 8 * sum_tolerance(c.setting().dtype, static_cast<double>(terms));
  }

  /// The reduced losses, and the factor of each element's slope.
  struct Reduced {
    Expected y;
    Values factors;
  };
  static Reduced reduce(const Values& each, const Values& sizes, Reduction reduction,
                        const Shape& shape, const Values& dy) {
    const bool kept = reduction == Reduction::none;
    const double divisor = divisor_of(reduction, shape);
    Reduced result{Expected(kept ? numel(shape) : 1), {}};
    for (std::size_t i = 0; i < each.size(); ++i) {
      const std::size_t to = kept ? i : 0;
      result.y.values[to] += each[i];
      result.y.magnitudes[to] += sizes[i] / divisor;
      result.factors.push_back(dy[to] / divisor);
    }
    for (double& value : result.y.values) value /= divisor;
    return result;
  }

  static AssertionResult check_elementwise(RandomCase& c) {
    const NaiveLoss& loss = losses[c.integer(0, std::size(losses) - 1)];
    const auto reduction =
        c.choose({Reduction::mean, Reduction::sum, Reduction::none, Reduction::batch_mean});
    const bool rows = reduction == Reduction::batch_mean;
    const Shape shape = c.shape(static_cast<int>(c.integer(rows, 4)), 20, 500);
    c.note(loss.name, " reduction ", static_cast<int>(reduction));
    const RandomTensor input = c.tensor(shape, loss.input), target = c.tensor(shape, loss.target);
    const bool weighted = loss.weighted && c.chance(0.5);
    const bool positive = loss.weighs_positive && c.chance(0.5);
    const RandomTensor weight = c.tensor(c.broadcastable(shape), {0.5, 2});
    const RandomTensor factor = c.tensor(c.broadcastable(shape), {0.5, 2});
    const RandomTensor dy = c.tensor(reduction == Reduction::none ? shape : Shape{});
    std::vector<Element> elements;
    Values each, sizes;
    for (std::int64_t i = 0; i < numel(shape); ++i) {
      const Dims index = index_of(i, shape);
      const auto of = [&](const RandomTensor& from) {
        return at(from.values, broadcast_position(index, from.shape()));
      };
      elements.push_back({at(input.values, i), at(target.values, i), weighted ? of(weight) : 1.0,
                          positive ? of(factor) : 1.0});
      each.push_back(loss.value(elements.back()));
      sizes.push_back(1 + std::abs(elements.back().input) + std::abs(each.back()));
    }
    const Reduced expected = reduce(each, sizes, reduction, shape, dy.values);
    Expected dx(numel(shape)), dt(numel(shape));
    for (std::size_t i = 0; i < elements.size(); ++i) {
      // Subnormal numbers of f16 have fewer digits, wherever they occur on the way.
      const double size = 4 * std::abs(expected.factors[i]) + 1e-4;
      dx.values[i] = expected.factors[i] * loss.of_input(elements[i]);
      dt.values[i] = expected.factors[i] * loss.of_target(elements[i]);
      dx.magnitudes[i] = size + std::abs(dx.values[i]);
      dt.magnitudes[i] = size * (1 + std::abs(elements[i].input)) + std::abs(dt.values[i]);
    }
    const Tensor x = leaf(input), t = leaf(target);
    const Tensor y = loss.call({x, t, weighted ? weight.tensor : Tensor(),
                                positive ? factor.tensor : Tensor(), reduction});
    if (auto r = agrees(y, dy.shape(), expected.y, allowed(c, numel(shape))); !r) return r;
    y.backward(dy);
    if (auto r = agrees(x.grad(), shape, dx, allowed(c, 4)); !r) return r << ": the gradient";
    return agrees(t.grad(), shape, dt, allowed(c, 4)) << ": the target's gradient";
  }

  static AssertionResult check_classes(RandomCase& c) {
    Shape shape = c.shape(static_cast<int>(c.integer(2, 4)), 20, 500);
    shape[1] = c.extent(20, false);
    Shape of_targets = shape;
    of_targets.erase(1);
    const auto reduction = c.choose({Reduction::mean, Reduction::sum, Reduction::none});
    c.note("nll_loss reduction ", static_cast<int>(reduction));
    const RandomTensor x = c.tensor(shape, {-4, 0});
    const RandomTensor targets =
        c.tensor(of_targets, DType::i64, {0, static_cast<double>(shape[1])});
    const RandomTensor dy = c.tensor(reduction == Reduction::none ? of_targets : Shape{});
    std::vector<std::int64_t> picked;
    Values each, sizes;
    for (std::int64_t i = 0; i < numel(of_targets); ++i) {
      Dims index = index_of(i, of_targets);
      index.insert(1, static_cast<std::int64_t>(at(targets.values, i)));
      picked.push_back(position_of(index, shape));
      each.push_back(-at(x.values, picked.back()));
      sizes.push_back(each.back());
    }
    const Reduced expected = reduce(each, sizes, reduction, of_targets, dy.values);
    Expected dx(numel(shape));
    for (std::size_t i = 0; i < picked.size(); ++i) dx.add(picked[i], -expected.factors[i]);
    const Tensor input = leaf(x), y = nll_loss(input, targets, reduction);
    if (auto r = agrees(y, dy.shape(), expected.y, allowed(c, numel(of_targets))); !r) return r;
    y.backward(dy);
    return agrees(input.grad(), shape, dx, allowed(c, 1)) << ": the gradient";
  }

  static AssertionResult check_case(RandomCase& c) {
    return c.chance(0.15) ? check_classes(c) : check_elementwise(c);
  }
};

TEST_P(RandomLosses, AgreeWithFormulas) { run_cases(150, check_case); }
TEST_P(RandomLosses, SlowAgreeWithFormulas) { run_cases(15000, check_case); }

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomLosses,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
