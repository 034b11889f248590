#include "contract/formulas.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "random/naive.hpp"
#include "support/call_op.hpp"

// Elementwise ops on random shapes, broadcasts and memory layouts, against formulas in double.

namespace lockstep::testing {
namespace {

using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// A value and the error allowed to a function of the dtype: its rounding, and that of what it is
/// computed in, which a function of values around 1 may see several times.
void put(Expected& expected, std::size_t i, double value, DType dtype) {
  expected.values[i] = value;
  expected.magnitudes[i] =
      std::abs(value) + 16 * held_rounding(dtype) / test::rounding(dtype) * (1 + std::abs(value));
}

class RandomUnary : public RandomCases {
 protected:
  static AssertionResult check_case(RandomCase& c) {
    const auto op = static_cast<UnaryOp>(c.integer(0, std::size(unary_ops) - 1));
    const OpTraits& line = traits(op);
    c.note(line.name);
    const DType dtype = c.setting().dtype;
    const Shape shape = c.shape(static_cast<int>(c.integer(0, 4)), 20, 600);
    const RandomTensor x = c.tensor(shape, {line.low, line.high}), dy = c.tensor(shape);
    const OpConstants constants = test::constants_of(op);
    Expected y(numel(shape)), dx(numel(shape));
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      const double value = x.values[i], h = 1e-6;
      put(y, i, test::formula(op, value, constants), dtype);
      const double slope =
          (test::formula(op, value + h, constants) - test::formula(op, value - h, constants)) /
          (2 * h);
      dx.values[i] = dy.values[i] * slope;
      dx.magnitudes[i] = std::abs(dx.values[i]) + std::abs(dy.values[i]);
    }
    const Tensor input = leaf(x), output = call(op, input, constants);
    if (auto r = agrees(output, shape, y, 2 * test::rounding(dtype)); !r) return r;
    output.backward(dy);
    // Ops that save their rounded result raise it to powers of up to three.
    if (auto r = agrees(input.grad(), shape, dx, 1e-8 + 8 * test::rounding(dtype)); !r)
      return r << ": the gradient";
    return AssertionSuccess();
  }
};

TEST_P(RandomUnary, AgreesWithFormulas) { run_cases(250, check_case); }
TEST_P(RandomUnary, SlowAgreesWithFormulas) { run_cases(25000, check_case); }

/// The gradients of a op b.
std::pair<double, double> slopes(BinaryOp op, double a, double b, double alpha) {
  const double tie = a == b ? 0.5 : 0.0;
  switch (op) {
    case BinaryOp::add: return {1, alpha};
    case BinaryOp::sub: return {1, -alpha};
    case BinaryOp::mul: return {b, a};
    case BinaryOp::div: return {1 / b, -a / b / b};
    case BinaryOp::maximum: return {a > b ? 1 : tie, b > a ? 1 : tie};
    case BinaryOp::minimum: return {a < b ? 1 : tie, b < a ? 1 : tie};
    case BinaryOp::pow: return {b * std::pow(a, b - 1), std::pow(a, b) * std::log(a)};
    case BinaryOp::binary_cross_entropy:
      // Near a half, the logarithm of a rounded quotient would keep few digits.
      return {(a - b) / (a * (1 - a)), static_cast<double>(std::log((1 - 1.0L * a) / a))};
  }
  return {NAN, NAN};
}

class RandomBinary : public RandomCases {
 protected:
  static AssertionResult check_case(RandomCase& c) {
    const auto op = static_cast<BinaryOp>(c.integer(0, std::size(binary_ops) - 1));
    const OpTraits& line = traits(op);
    const DType dtype = c.setting().dtype;
    const OpConstants constants{.alpha = c.chance(0.5) ? 1.0 : 0.75};
    c.note(line.name, " alpha ", constants.alpha);
    const Shape most = c.shape(static_cast<int>(c.integer(0, 4)), 20, 600);
    const RandomTensor a = c.tensor(c.broadcastable(most), {line.low, line.high});
    const RandomTensor b = c.tensor(c.broadcastable(most), {line.low, line.high});
    const Shape shape = broadcast_shapes(a.shape(), b.shape());
    const RandomTensor dy = c.tensor(shape);
    Expected y(numel(shape)), da(a.tensor.numel()), db(b.tensor.numel());
    for (std::int64_t i = 0; i < numel(shape); ++i) {
      const Dims index = index_of(i, shape);
      const std::int64_t at_a = broadcast_position(index, a.shape());
      const std::int64_t at_b = broadcast_position(index, b.shape());
      const double left = at(a.values, at_a), right = at(b.values, at_b);
      put(y, static_cast<std::size_t>(i), test::formula(op, left, right, constants), dtype);
      const auto [slope_a, slope_b] = slopes(op, left, right, constants.alpha);
      da.add(at_a, at(dy.values, i) * slope_a);
      db.add(at_b, at(dy.values, i) * slope_b);
    }
    const Tensor left = leaf(a), right = leaf(b), output = call(op, left, right, constants);
    if (auto r = agrees(output, shape, y, 2 * test::rounding(dtype)); !r) return r;
    output.backward(dy);
    // Each term is rounded to the dtype before the sum over what was broadcast.
    const double allowed =
        4 * test::rounding(dtype) + sum_tolerance(dtype, static_cast<double>(numel(shape)));
    if (auto r = agrees(left.grad(), a.shape(), da, allowed); !r) return r << ": gradient of a";
    if (auto r = agrees(right.grad(), b.shape(), db, allowed); !r) return r << ": gradient of b";
    return AssertionSuccess();
  }
};

TEST_P(RandomBinary, AgreesWithFormulas) { run_cases(250, check_case); }
TEST_P(RandomBinary, SlowAgreesWithFormulas) { run_cases(25000, check_case); }

constexpr auto floating = {DType::f64, DType::f32, DType::bf16, DType::f16};
INSTANTIATE_TEST_SUITE_P(Backends, RandomUnary, ::testing::ValuesIn(settings(floating)),
                         setting_name);
INSTANTIATE_TEST_SUITE_P(Backends, RandomBinary, ::testing::ValuesIn(settings(floating)),
                         setting_name);

class RandomIntegers : public RandomCases {
 protected:
  static double apply(BinaryOp op, double a, double b) {
    if (op != BinaryOp::div) return test::formula(op, a, b, {});
    return b == 0 ? 0 : std::trunc(a / b);
  }
  static AssertionResult check_case(RandomCase& c) {
    const auto op = static_cast<BinaryOp>(c.integer(0, static_cast<int>(BinaryOp::pow) - 1));
    c.note(traits(op).name);
    const Shape most = c.shape(static_cast<int>(c.integer(0, 4)), 20, 600);
    const RandomTensor a = c.tensor(c.broadcastable(most), {-20, 20});
    const RandomTensor b = c.tensor(c.broadcastable(most), {-4, 4});
    const Shape shape = broadcast_shapes(a.shape(), b.shape());
    Values y;
    for (std::int64_t i = 0; i < numel(shape); ++i) {
      const Dims index = index_of(i, shape);
      y.push_back(apply(op, at(a.values, broadcast_position(index, a.shape())),
                        at(b.values, broadcast_position(index, b.shape()))));
    }
    return agrees(call(op, a, b, {}), shape, exactly(y), 0);
  }
};

TEST_P(RandomIntegers, AgreeWithLoops) { run_cases(60, check_case); }
TEST_P(RandomIntegers, SlowAgreeWithLoops) { run_cases(6000, check_case); }

INSTANTIATE_TEST_SUITE_P(Backends, RandomIntegers,
                         ::testing::ValuesIn(settings({DType::i64, DType::i32})), setting_name);

/// Comparisons, `where` and conversions, of every dtype.
class RandomChoice : public RandomCases {
 protected:
  static bool holds(int relation, double a, double b) {
    const bool results[] = {a == b, a != b, a<b, a <= b, a> b, a >= b};
    return results[relation];
  }
  static AssertionResult check_case(RandomCase& c) {
    using Compare = Tensor (*)(const Tensor&, const Tensor&);
    constexpr Compare compare[] = {eq, ne, lt, le, gt, ge};
    const auto relation = static_cast<int>(c.integer(0, 5));
    c.note("relation ", relation);
    const Shape most = c.shape(static_cast<int>(c.integer(0, 4)), 20, 600);
    // Few different values, so that some are equal.
    const Range range = c.chance(0.5) ? Range{0, 3} : Range{0, 100};
    const RandomTensor a = c.tensor(c.broadcastable(most), range);
    const RandomTensor b = c.tensor(c.broadcastable(most), range);
    const Shape both = broadcast_shapes(a.shape(), b.shape());
    const RandomTensor condition = c.tensor(c.broadcastable(most), DType::boolean, {0, 1});
    const Shape all = broadcast_shapes(both, condition.shape());
    Values truth, chosen;
    for (std::int64_t i = 0; i < numel(both); ++i) {
      const Dims index = index_of(i, both);
      truth.push_back(holds(relation, at(a.values, broadcast_position(index, a.shape())),
                            at(b.values, broadcast_position(index, b.shape()))));
    }
    for (std::int64_t i = 0; i < numel(all); ++i) {
      const Dims index = index_of(i, all);
      const bool first = at(condition.values, broadcast_position(index, condition.shape())) != 0;
      const RandomTensor& from = first ? a : b;
      chosen.push_back(at(from.values, broadcast_position(index, from.shape())));
    }
    if (auto r = agrees(compare[relation](a, b), both, exactly(truth), 0); !r) return r;
    if (auto r = agrees(where(condition, a, b), all, exactly(chosen), 0); !r) return r << ": where";
    if (auto r = agrees(a.tensor.clone(), a.shape(), exactly(a.values), 0); !r)
      return r << ": clone";
    return check_conversion(c, a);
  }
  /// Values of 0 to 100 become any dtype: rounded, cut or true.
  static AssertionResult check_conversion(RandomCase& c, const RandomTensor& x) {
    const auto to = c.choose({DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64,
                              DType::i32, DType::u8, DType::boolean});
    c.note("to ", to);
    Expected expected = exactly(x.values);
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      double& value = expected.values[i];
      if (is_floating(to))
        expected.magnitudes[i] = std::abs(value);
      else
        value = to == DType::boolean ? value != 0 : std::trunc(value);
    }
    const Tensor y = x.tensor.to(to);
    if (y.dtype() != to) return ::testing::AssertionFailure() << "converted to " << y.dtype();
    return agrees(y, x.shape(), expected, is_floating(to) ? test::rounding(to) : 0)
           << ": conversion";
  }
};

TEST_P(RandomChoice, AgreesWithLoops) { run_cases(60, check_case); }
TEST_P(RandomChoice, SlowAgreesWithLoops) { run_cases(6000, check_case); }

INSTANTIATE_TEST_SUITE_P(Backends, RandomChoice,
                         ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16,
                                                       DType::f16, DType::i64, DType::i32,
                                                       DType::u8, DType::boolean})),
                         setting_name);

}  // namespace
}  // namespace lockstep::testing
