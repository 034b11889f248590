#include <limits>

#include "contract/formulas.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "random/naive.hpp"
#include "support/call_op.hpp"
#include "support/chosen_op.hpp"

// Elementwise ops on random shapes, broadcasts and memory layouts, against formulas in double.

namespace lockstep::testing {
namespace {

using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// A value and the error allowed to a function of the dtype: its rounding, and that of what it is
/// computed in, which a function of values around 1 may see several times.
void put_rounded(Expected& expected, std::size_t i, double value, DType dtype) {
  expected.values[i] = value;
  expected.magnitudes[i] =
      std::abs(value) + 16 * held_rounding(dtype) / test::rounding(dtype) * (1 + std::abs(value));
}

class RandomUnary : public RandomCases {
 protected:
  static AssertionResult check_case(RandomCase& c) {
    static const std::vector<std::size_t> ops = chosen(unary_ops);
    const auto last = static_cast<std::int64_t>(ops.size()) - 1;
    const auto op = static_cast<UnaryOp>(ops.at(static_cast<std::size_t>(c.integer(0, last))));
    const OpTraits& line = traits(op);
    c.note(line.name);
    const DType dtype = c.setting().dtype;
    const Shape shape = c.shape(static_cast<int>(c.integer(0, 4)), 20, 600);
    const RandomTensor x = c.tensor(shape, {line.low, line.high}), dy = c.tensor(shape);
    const OpConstants constants = test::test_constants;
    Expected y(numel(shape)), dx(numel(shape));
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      const auto f = [&](double at) { return test::formula(op, at, constants); };
      put_rounded(y, i, f(x.values[i]), dtype);
      dx.values[i] = dy.values[i] * test::slope_of(f, x.values[i]);
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
      const auto of_a = [&](double x) { return test::formula(op, x, right, constants); };
      const auto of_b = [&](double x) { return test::formula(op, left, x, constants); };
      put_rounded(y, static_cast<std::size_t>(i), of_a(left), dtype);
      da.add(at_a, at(dy.values, i) * test::slope_of(of_a, left));
      db.add(at_b, at(dy.values, i) * test::slope_of(of_b, right));
      // Where a slope is 0, differences still round.
      da.magnitudes[static_cast<std::size_t>(at_a)] += std::abs(at(dy.values, i));
      db.magnitudes[static_cast<std::size_t>(at_b)] += std::abs(at(dy.values, i));
      // Between two that are closer than the steps of the differences may lie a kink, at two that
      // are equal a step of their quotient.
      const bool steps =
          op == BinaryOp::floor_divide || op == BinaryOp::remainder || op == BinaryOp::fmod;
      if ((left != right || steps) && std::abs(left - right) < 1e-5)
        da.magnitudes[static_cast<std::size_t>(at_a)] =
            db.magnitudes[static_cast<std::size_t>(at_b)] = std::numeric_limits<double>::infinity();
    }
    const Tensor left = leaf(a), right = leaf(b), output = call(op, left, right, constants);
    if (auto r = agrees(output, shape, y, 2 * test::rounding(dtype)); !r) return r;
    output.backward(dy);
    // Each term is rounded to the dtype before the sum over what was broadcast.
    const double allowed =
        1e-8 + 4 * test::rounding(dtype) + sum_tolerance(dtype, static_cast<double>(numel(shape)));
    if (auto r = agrees(left.grad(), a.shape(), da, allowed); !r) return r << ": gradient of a";
    if (auto r = agrees(right.grad(), b.shape(), db, allowed); !r) return r << ": gradient of b";
    return AssertionSuccess();
  }
};

TEST_P(RandomBinary, AgreesWithFormulas) { run_cases(250, check_case); }
TEST_P(RandomBinary, SlowAgreesWithFormulas) { run_cases(25000, check_case); }

INSTANTIATE_TEST_SUITE_P(Backends, RandomUnary, ::testing::ValuesIn(settings(floating)),
                         setting_name);
INSTANTIATE_TEST_SUITE_P(Backends, RandomBinary, ::testing::ValuesIn(settings(floating)),
                         setting_name);

class RandomIntegers : public RandomCases {
 protected:
  /// What integers make of it: quotients are cut, and 0 for a division by 0; u8 is modulo 256.
  static double apply(BinaryOp op, double a, double b, DType dtype) {
    const double value = test::formula(op, a, b, {});
    const double whole = std::isfinite(value) ? std::trunc(value) : 0;
    return dtype == DType::u8 ? whole - 256 * std::floor(whole / 256) : whole;
  }
  static AssertionResult check_case(RandomCase& c) {
    const auto op = static_cast<BinaryOp>(c.integer(0, std::size(binary_ops) - 1));
    if (!test::takes_integers(op)) return AssertionSuccess();
    c.note(traits(op).name);
    const Shape most = c.shape(static_cast<int>(c.integer(0, 4)), 20, 600);
    const DType dtype = c.setting().dtype;
    const bool bytes = dtype == DType::u8;
    const RandomTensor a = c.tensor(c.broadcastable(most), bytes ? Range{0, 255} : Range{-20, 20});
    const RandomTensor b = c.tensor(c.broadcastable(most), bytes ? Range{0, 20} : Range{-4, 4});
    const Shape shape = broadcast_shapes(a.shape(), b.shape());
    Values y;
    for (std::int64_t i = 0; i < numel(shape); ++i) {
      const Dims index = index_of(i, shape);
      y.push_back(apply(op, at(a.values, broadcast_position(index, a.shape())),
                        at(b.values, broadcast_position(index, b.shape())), dtype));
    }
    const Tensor found = op == BinaryOp::div ? div(a, b, RoundingMode::trunc) : call(op, a, b, {});
    return agrees(found, shape, exactly(y), 0);
  }
};

TEST_P(RandomIntegers, AgreeWithLoops) { run_cases(60, check_case); }
TEST_P(RandomIntegers, SlowAgreeWithLoops) { run_cases(6000, check_case); }

INSTANTIATE_TEST_SUITE_P(Backends, RandomIntegers,
                         ::testing::ValuesIn(settings({DType::i64, DType::i32, DType::u8})),
                         setting_name);

/// Comparisons, `where` and conversions, of every dtype.
class RandomChoice : public RandomCases {
 protected:
  static AssertionResult check_case(RandomCase& c) {
    const auto op = static_cast<CompareOp>(c.integer(0, std::size(compare_ops) - 1));
    c.note(traits(op).name);
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
      truth.push_back(test::formula(op, at(a.values, broadcast_position(index, a.shape())),
                                    at(b.values, broadcast_position(index, b.shape()))));
    }
    for (std::int64_t i = 0; i < numel(all); ++i) {
      const Dims index = index_of(i, all);
      const bool first = at(condition.values, broadcast_position(index, condition.shape())) != 0;
      const RandomTensor& from = first ? a : b;
      chosen.push_back(at(from.values, broadcast_position(index, from.shape())));
    }
    if (auto r = agrees(call(op, a, b), both, exactly(truth), 0); !r) return r;
    if (auto r = check_number(c, a); !r) return r << ": with a number";
    if (auto r = check_kinds(a); !r) return r;
    if (auto r = agrees(where(condition, a, b), all, exactly(chosen), 0); !r) return r << ": where";
    if (auto r = agrees(a.tensor.clone(), a.shape(), exactly(a.values), 0); !r)
      return r << ": clone";
    return check_conversion(c, a);
  }
  /// Which elements are 0, finite, infinite or NaN.
  static AssertionResult check_kinds(const RandomTensor& x) {
    const bool real = is_floating(x.tensor.dtype());
    const Tensor whole = real ? trunc(x.tensor) : x.tensor;
    const Tensor below = real ? whole - 1.0 : whole;
    const Tensor odd = real ? below / (whole * below) : whole;  // 0 becomes infinite, 1 NaN
    Values zero, nan, infinite, finite;
    for (const double value : x.values) {
      const double w = std::trunc(value), element = real ? (w - 1) / (w * (w - 1)) : w;
      zero.push_back(w == 0);
      nan.push_back(std::isnan(element));
      infinite.push_back(std::isinf(element));
      finite.push_back(std::isfinite(element));
    }
    if (auto r = agrees(logical_not(whole), x.shape(), exactly(zero), 0); !r) return r << ": not";
    if (auto r = agrees(isnan(odd), x.shape(), exactly(nan), 0); !r) return r << ": isnan";
    if (auto r = agrees(isinf(odd), x.shape(), exactly(infinite), 0); !r) return r << ": isinf";
    return agrees(isfinite(odd), x.shape(), exactly(finite), 0) << ": isfinite";
  }
  /// Numbers that are elements, lie between integers, and are no value of the dtype.
  static AssertionResult check_number(RandomCase& c, const RandomTensor& x) {
    using Compare = Tensor (*)(const Tensor&, Scalar);
    constexpr std::pair<CompareOp, Compare> ops[] = {{CompareOp::eq, eq}, {CompareOp::ne, ne},
                                                     {CompareOp::lt, lt}, {CompareOp::le, le},
                                                     {CompareOp::gt, gt}, {CompareOp::ge, ge}};
    const auto [op, compare] = ops[c.integer(0, std::size(ops) - 1)];
    const double infinity = std::numeric_limits<double>::infinity();
    const double value = c.choose({0.0, 1.0, 0.5, 2.5, -1.0, 300.0, 1e30, -1e30, infinity});
    c.note(traits(op).name, " ", value);
    Values truth;
    for (const double element : x.values) truth.push_back(test::formula(op, element, value));
    return agrees(compare(x, value), x.shape(), exactly(truth), 0);
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
