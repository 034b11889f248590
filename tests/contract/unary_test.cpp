#include "arguments/elementwise.hpp"
#include "contract/backends.hpp"
#include "contract/formulas.hpp"
#include "support/chosen_op.hpp"

namespace lockstep::test {
namespace {

class UnaryContract : public ContractTest {
 protected:
  void run(UnaryOp op, const DeviceArray& y, const DeviceArray& x) {
    backend().elementwise.unary({.op = op, .y = y, .x = x, .constants = test_constants}, stream());
  }

  static Values expected(UnaryOp op, const Values& x) {
    Values y;
    for (const double value : x) y.push_back(formula(op, value, test_constants));
    return y;
  }

  template <class Check>
  static void for_each_op(Check check) {
    for (const std::size_t i : testing::chosen(unary_ops)) {
      SCOPED_TRACE(unary_ops[i].name);
      check(static_cast<UnaryOp>(i), unary_ops[i]);
    }
  }

  void check_layout(const Shape& shape, const Strides& to, const Strides& from) {
    for_each_op([&](UnaryOp op, const OpTraits& line) {
      const auto x = array(shape, from).randomize(3, line.low, line.high);
      const auto y = array(shape, to);
      run(op, y, x);
      EXPECT_TRUE(close(y.get(), expected(op, x.get()), tolerance()));
    });
  }
};

TEST_P(UnaryContract, MatchesFormulasOnContiguousArrays) {
  check_layout({3, 701}, {701, 1}, {701, 1});
}
TEST_P(UnaryContract, MatchesFormulasOnTransposedArrays) {
  check_layout({70, 33}, {33, 1}, {1, 70});
  check_layout({33, 5}, {1, 33}, {5, 1});
}
TEST_P(UnaryContract, MatchesFormulasOnBroadcastAndPaddedArrays) {
  check_layout({9, 130}, {130, 1}, {0, 1});
  check_layout({9, 130}, {140, 1}, {1, 0});
  check_layout({4, 3, 5}, {15, 5, 1}, {60, 20, 2});
}
TEST_P(UnaryContract, TakesScalarsAndEmptyArrays) {
  check_layout({}, {}, {});
  check_layout({3, 0}, {1, 1}, {1, 1});
}
TEST_P(UnaryContract, WorksInPlace) {
  for_each_op([&](UnaryOp op, const OpTraits& line) {
    const auto x = array({1500}).randomize(3, line.low, line.high);
    const Values y = expected(op, x.get());
    run(op, x, x);
    EXPECT_TRUE(close(x.get(), y, tolerance()));
  });
}

TEST_P(UnaryContract, GradientsMatchDifferences) {
  for_each_op([&](UnaryOp op, const OpTraits& line) {
    const auto x = array({257}).randomize(5, line.low, line.high);
    const auto dy = array({257}).randomize(6), y = array({257}), dx = array({257});
    run(op, y, x);
    const bool input = line.saves == Saves::input, output = line.saves == Saves::output;
    const ArrayView saved = input ? x.view() : output ? y.view() : ArrayView{};
    backend().elementwise.unary_backward(
        {.op = op, .dx = dx, .dy = dy, .saved = saved, .constants = test_constants}, stream());
    Values expected_dx;
    const Values xs = x.get(), dys = dy.get();
    for (std::size_t i = 0; i < xs.size(); ++i) {
      const auto f = [op](double at) { return formula(op, at, test_constants); };
      expected_dx.push_back(dys[i] * slope_of(f, xs[i]));
    }
    // What is saved as y was rounded to the dtype, and powers of it enter the gradient.
    EXPECT_TRUE(close(dx.get(), expected_dx, 1e-8 + 4 * tolerance()));
  });
}

TEST_P(UnaryContract, Log1pKeepsTheSignOfZero) {
  const auto x = array({2}).set({0.0, -0.0}), y = array({2});
  run(UnaryOp::log1p, y, x);
  EXPECT_FALSE(std::signbit(y.get()[0]));
  EXPECT_TRUE(std::signbit(y.get()[1]));
}

TEST_P(UnaryContract, SpecialValuesGiveTheUsualResults) {
  const double inf = INFINITY, nan = NAN;
  const auto check = [&](UnaryOp op, const Values& in, const Values& out) {
    SCOPED_TRACE(traits(op).name);
    const auto n = static_cast<std::int64_t>(in.size());
    const auto x = array({n}).set(in), y = array({n});
    run(op, y, x);
    EXPECT_TRUE(close(y.get(), out, tolerance()));
  };
  check(UnaryOp::exp, {inf, -inf, nan, 0, 1000, -1000}, {inf, 0, nan, 1, inf, 0});
  check(UnaryOp::expm1, {inf, -inf, nan, 0, -60}, {inf, -1, nan, 0, -1});
  check(UnaryOp::log, {inf, 0, -1, nan, 1}, {inf, -inf, nan, nan, 0});
  check(UnaryOp::log2, {inf, 0, -1, nan, 8, 0.25}, {inf, -inf, nan, nan, 3, -2});
  check(UnaryOp::log10, {inf, 0, -1, nan, 1000}, {inf, -inf, nan, nan, 3});
  check(UnaryOp::tan, {inf, nan, 0}, {nan, nan, 0});
  check(UnaryOp::atan, {inf, -inf, nan, 0}, {M_PI / 2, -M_PI / 2, nan, 0});
  check(UnaryOp::asin, {1, -1, 2, nan, 0}, {M_PI / 2, -M_PI / 2, nan, nan, 0});
  check(UnaryOp::acos, {1, -1, 2, nan, 0}, {0, M_PI, nan, nan, M_PI / 2});
  check(UnaryOp::sinh, {inf, -inf, nan, 0}, {inf, -inf, nan, 0});
  check(UnaryOp::cosh, {inf, -inf, nan, 0}, {inf, inf, nan, 1});
  check(UnaryOp::asinh, {inf, -inf, nan, 0}, {inf, -inf, nan, 0});
  check(UnaryOp::acosh, {inf, 0.5, nan, 1}, {inf, nan, nan, 0});
  check(UnaryOp::atanh, {1, -1, 2, nan, 0}, {inf, -inf, nan, nan, 0});
  check(UnaryOp::log1p, {inf, -1, -2, nan, 0}, {inf, -inf, nan, nan, 0});
  check(UnaryOp::tanh, {inf, -inf, nan, 100, -100}, {1, -1, nan, 1, -1});
  check(UnaryOp::sigmoid, {inf, -inf, nan, 200}, {1, 0, nan, 1});
  check(UnaryOp::erf, {inf, -inf, nan, 9, -9}, {1, -1, nan, 1, -1});
  check(UnaryOp::relu, {inf, -inf, nan}, {inf, 0, nan});
  check(UnaryOp::softplus, {inf, -inf, nan, 500}, {inf, 0, nan, 500});
  check(UnaryOp::mish, {50, -200}, {50, 0});
  check(UnaryOp::clamp, {inf, -inf, nan}, {0.875, 0.375, nan});
  check(UnaryOp::sign, {inf, -inf, nan, 0.0, -0.0, -3}, {1, -1, 0, 0, 0, -1});
  check(UnaryOp::floor, {inf, -inf, nan, -1.5, -0.5, 2, 0.75}, {inf, -inf, nan, -2, -1, 2, 0});
  check(UnaryOp::ceil, {inf, -inf, nan, -1.5, 0.25, 2}, {inf, -inf, nan, -1, 1, 2});
  check(UnaryOp::trunc, {inf, -inf, nan, -1.5, 1.75, 2}, {inf, -inf, nan, -1, 1, 2});
  check(UnaryOp::round, {inf, nan, 0.5, 1.5, 2.5, -0.5, -1.5, 1.25}, {inf, nan, 0, 2, 2, 0, -2, 1});
}

// On a CPU angles are computed by two ways, which depend on their size and on that of neighbours.
TEST_P(UnaryContract, TakesAnglesOfAnySize) {
  for (const UnaryOp op : {UnaryOp::sin, UnaryOp::cos, UnaryOp::tan}) {
    SCOPED_TRACE(traits(op).name);
    auto x = array({3000}).randomize(4, -100.0, 100.0);
    const auto y = array({3000}), dx = array({3000}), dy = array({3000}).randomize(5);
    Values angles = x.get();
    angles[1500] = 60000, angles[1501] = INFINITY, angles[1502] = NAN;
    if (x.view().dtype != DType::f16) angles[1503] = 0x1p100, angles[1504] = -131072;
    x.set(angles);
    run(op, y, x);
    EXPECT_TRUE(close(y.get(), expected(op, x.get()), 4 * tolerance()));
    if (op == UnaryOp::tan) continue;  // its gradient is that of the result
    backend().elementwise.unary_backward({.op = op, .dx = dx, .dy = dy, .saved = x.view()},
                                         stream());
    Values slopes = dy.get();
    const Values at = x.get();
    for (std::size_t i = 0; i < at.size(); ++i)
      slopes[i] *= op == UnaryOp::sin ? std::cos(at[i]) : -std::sin(at[i]);
    EXPECT_TRUE(close(dx.get(), slopes, 4 * tolerance()));
  }
}

// Each side of where another formula takes over, next to 0 and to the ends of the domain.
TEST_P(UnaryContract, HyperbolicAndInverseFunctionsFollowFormulasEverywhere) {
  const auto check = [&](UnaryOp op, double low, double high, const Values& others) {
    SCOPED_TRACE(traits(op).name);
    auto x = array({3000}).randomize(6, low, high);
    const auto y = array({3000});
    Values points = x.get();
    std::copy(others.begin(), others.end(), points.begin() + 1500);
    x.set(points);
    run(op, y, x);
    EXPECT_TRUE(close(y.get(), expected(op, x.get()), 2 * tolerance()));
  };
  const Values ends{1, 0.99609375, 0.5, -0.5, 0.0078125, -0.0, -0.99609375, -1, 1.5, NAN};
  check(UnaryOp::asin, -1, 1, ends);
  check(UnaryOp::acos, -1, 1, ends);
  check(UnaryOp::atanh, -1, 1, ends);
  const Values large{11, -11, 9.5, 1, -1, 0.0001, -0.0, INFINITY, -INFINITY, NAN};
  check(UnaryOp::sinh, -10, 10, large);
  check(UnaryOp::cosh, -10, 10, large);
  check(UnaryOp::asinh, -10, 10, large);
  check(UnaryOp::acosh, 1, 10, {1, 1.0078125, 60000, 0.5, -2, INFINITY, -INFINITY, NAN});
}

TEST_P(UnaryContract, RaisesToAnyPower) {
  for (const double power : {-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 2.5, -3.0}) {
    SCOPED_TRACE(power);
    const OpConstants constants{.alpha = power};
    const auto x = array({9}).set({-2, -1, -0.0, 0.0, 0.25, 1, 3, INFINITY, NAN});
    const auto y = array({9}), dx = array({9}), dy = array({9}).set(Values(9, 2.0));
    backend().elementwise.unary({.op = UnaryOp::pow_scalar, .y = y, .x = x, .constants = constants},
                                stream());
    backend().elementwise.unary_backward(
        {.op = UnaryOp::pow_scalar, .dx = dx, .dy = dy, .saved = x.view(), .constants = constants},
        stream());
    Values expected_y, expected_dx;
    for (const double value : x.get()) {
      expected_y.push_back(std::pow(value, power));
      expected_dx.push_back(power == 0 ? 0 : 2 * power * std::pow(value, power - 1));
    }
    EXPECT_TRUE(close(y.get(), expected_y, tolerance()));
    EXPECT_TRUE(close(dx.get(), expected_dx, 4 * tolerance()));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, UnaryContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

/// How many of the last places of `right` lie between it and `got`.
double ulps_between(double got, long double right) {
  const auto nearest = static_cast<double>(right);
  if (got == nearest || (std::isnan(got) && std::isnan(nearest))) return 0;
  const double place = std::nextafter(std::fabs(nearest), INFINITY) - std::fabs(nearest);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - right)) / place;
}

class UnaryDoubles : public UnaryContract {};

TEST_P(UnaryDoubles, AreRightToThreeUlp) {
  const auto check = [&](UnaryOp op, auto right, double low, double high, const Values& others) {
    SCOPED_TRACE(traits(op).name);
    auto x = array({4000}).randomize(8, low, high);
    const auto y = array({4000});
    Values points = x.get();
    for (std::size_t i = 0; i < 1000; ++i) points[i] *= std::ldexp(1.0, -static_cast<int>(i));
    std::copy(others.begin(), others.end(), points.begin() + 2000);
    x.set(points);
    run(op, y, x);
    const Values got = y.get();
    for (std::size_t i = 0; i < points.size(); ++i)
      EXPECT_LE(ulps_between(got[i], right(static_cast<long double>(points[i]))), 3.0)
          << "of " << points[i] << " it is " << got[i];
    EXPECT_EQ(std::signbit(got[2000]), std::signbit(static_cast<double>(right(points[2000]))));
  };
  using Real = long double;
  check(UnaryOp::exp, [](Real x) { return std::exp(x); }, -745, 709,
        {-0.0, 709.78, 710, -745.1, -746, 1e308, -1e308, INFINITY, -INFINITY, NAN, 5e-324});
  check(UnaryOp::expm1, [](Real x) { return std::expm1(x); }, -40, 709,
        {-0.0, 0.3466, -0.3466, 0.3465, -37, 709.78, 710, INFINITY, -INFINITY, NAN, 5e-324});
  check(UnaryOp::log, [](Real x) { return std::log(x); }, 0, 4,
        {-0.0, 1, 0x1p-1022, 5e-324, 1.7e308, 0.70710678, 1.41421356, INFINITY, -1, NAN});
  check(UnaryOp::log1p, [](Real x) { return std::log1p(x); }, -1, 4,
        {-0.0, -1, -2, 5e-324, 1.7e308, 1e16, -0x1p-53, 0x1p-53, INFINITY, -INFINITY, NAN});
  check(UnaryOp::tanh, [](Real x) { return std::tanh(x); }, -4, 4,
        {-0.0, 19, -19, 20.5, 1e300, 5e-324, INFINITY, -INFINITY, NAN});
  // The last ones lie next to multiples of pi / 2, where nearly nothing is left, or need a call.
  const Values angles{-0.0,
                      5e-324,
                      1.5707963267948966,
                      3.141592653589793,
                      -102943.70807274595,
                      6.283185307179586,
                      131072,
                      131073,
                      1e22,
                      -1e300,
                      INFINITY,
                      -INFINITY,
                      NAN};
  check(
      UnaryOp::sin, [](Real x) { return std::sin(x); }, -131072, 131072, angles);
  check(
      UnaryOp::cos, [](Real x) { return std::cos(x); }, -131072, 131072, angles);
}

INSTANTIATE_TEST_SUITE_P(Backends, UnaryDoubles, ::testing::ValuesIn(targets({DType::f64})),
                         target_name);

class UnaryIntegers : public ContractTest {};

TEST_P(UnaryIntegers, OfferWhatTheContractNames) {
  const auto x = array({4}).set({-3, 0, 2, 7}), y = array({4});
  const auto run = [&](UnaryOp op, OpConstants constants = {}) {
    backend().elementwise.unary({.op = op, .y = y, .x = x, .constants = constants}, stream());
    return y.get();
  };
  EXPECT_EQ(run(UnaryOp::relu), (Values{0, 0, 2, 7}));
  EXPECT_EQ(run(UnaryOp::affine, {2.0, 1.0}), (Values{-5, 1, 5, 15}));
  EXPECT_EQ(run(UnaryOp::clamp, {-INFINITY, 2.0}), (Values{-3, 0, 2, 2}));
  EXPECT_EQ(run(UnaryOp::sign), (Values{-1, 0, 1, 1}));
  EXPECT_EQ(run(UnaryOp::floor), (Values{-3, 0, 2, 7}));
  EXPECT_THROW(run(UnaryOp::affine, {0.5, 0.0}), InvalidArgument);
  EXPECT_THROW(run(UnaryOp::exp), Unsupported);
}

INSTANTIATE_TEST_SUITE_P(Backends, UnaryIntegers,
                         ::testing::ValuesIn(targets({DType::i64, DType::i32})), target_name);

class UnaryBytes : public ContractTest {
 protected:
  Values run(UnaryOp op, const DeviceArray& x, OpConstants constants = {}) {
    const auto y = array(x.view().shape);
    backend().elementwise.unary({.op = op, .y = y, .x = x, .constants = constants}, stream());
    return y.get();
  }
};

TEST_P(UnaryBytes, AreComputedModulo256) {
  const auto x = array({4}).set({200, 0, 2, 255});
  EXPECT_EQ(run(UnaryOp::neg, x), (Values{56, 0, 254, 1}));
  EXPECT_EQ(run(UnaryOp::sign, x), (Values{1, 0, 1, 1}));
  EXPECT_EQ(run(UnaryOp::affine, x, {2.0, 1.0}), (Values{145, 1, 5, 255}));
  EXPECT_EQ(run(UnaryOp::clamp, x, {-INFINITY, 2.0}), (Values{2, 0, 2, 2}));
  EXPECT_THROW(run(UnaryOp::affine, x, {0.5, 0.0}), InvalidArgument);
  EXPECT_THROW(run(UnaryOp::exp, x), Unsupported);
}

TEST_P(UnaryBytes, AreTakenFromAnyLayout) {
  for (const Strides& strides : {Strides{701, 1}, Strides{1, 3}, Strides{710, 1}, Strides{0, 1}}) {
    const auto x = array({3, 701}, strides).randomize(3, 0, 256);
    Values expected;
    for (const double value : x.get()) expected.push_back(std::fmod(value * value, 256));
    EXPECT_EQ(run(UnaryOp::square, x), expected) << "strides " << strides;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, UnaryBytes, ::testing::ValuesIn(targets({DType::u8})),
                         target_name);

class UnaryTruth : public ContractTest {};

TEST_P(UnaryTruth, HasNoArithmetic) {
  const auto x = array({2}), y = array({2});
  EXPECT_THROW(backend().elementwise.unary({.op = UnaryOp::neg, .y = y, .x = x}, stream()),
               Unsupported);
}

INSTANTIATE_TEST_SUITE_P(Backends, UnaryTruth, ::testing::ValuesIn(targets({DType::boolean})),
                         target_name);

}  // namespace
}  // namespace lockstep::test
