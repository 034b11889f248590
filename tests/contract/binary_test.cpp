#include "arguments/elementwise.hpp"
#include "contract/backends.hpp"
#include "contract/formulas.hpp"

namespace lockstep::test {
namespace {

class BinaryContract : public ContractTest {
 protected:
  static constexpr OpConstants constants{0.5, 0.0};

  template <class Check>
  static void for_each_op(Check check) {
    for (std::size_t i = 0; i < std::size(binary_ops); ++i) {
      SCOPED_TRACE(binary_ops[i].name);
      check(static_cast<BinaryOp>(i), binary_ops[i]);
    }
  }

  void check_layout(const Shape& shape, const Strides& to, const Strides& left,
                    const Strides& right) {
    for_each_op([&](BinaryOp op, const OpTraits& line) {
      const auto a = array(shape, left).randomize(1, line.low, line.high);
      const auto b = array(shape, right).randomize(2, line.low, line.high);
      const auto out = array(shape, to);
      backend().elementwise.binary({.op = op, .out = out, .a = a, .b = b, .constants = constants},
                                   stream());
      const Values x = a.get(), y = b.get();
      Values expected;
      for (std::size_t i = 0; i < x.size(); ++i)
        expected.push_back(formula(op, x[i], y[i], constants));
      EXPECT_TRUE(close(out.get(), expected, tolerance()));
    });
  }
};

TEST_P(BinaryContract, MatchesFormulasOnContiguousArrays) {
  check_layout({1}, {1}, {1}, {1});
  check_layout({5, 700}, {700, 1}, {700, 1}, {700, 1});
}
TEST_P(BinaryContract, BroadcastsRowsColumnsAndScalars) {
  check_layout({33, 200}, {200, 1}, {200, 1}, {0, 1});
  check_layout({33, 200}, {200, 1}, {1, 0}, {200, 1});
  check_layout({33, 7}, {7, 1}, {0, 0}, {0, 1});
  check_layout({2, 3, 5, 7}, {105, 35, 7, 1}, {105, 35, 7, 1}, {0, 1, 0, 0});
}
// Rows too short for a loop of their own; more than one tile and one thread have.
TEST_P(BinaryContract, BroadcastsShortRows) {
  check_layout({2000, 3}, {3, 1}, {3, 1}, {0, 1});
  check_layout({2000, 3}, {3, 1}, {1, 0}, {3, 1});
  check_layout({15000, 5}, {5, 1}, {5, 1}, {1, 0});
  check_layout({600, 31}, {31, 1}, {0, 1}, {1, 0});
  check_layout({20, 50, 7}, {350, 7, 1}, {350, 7, 1}, {7, 0, 1});
  check_layout({20, 50, 7}, {350, 7, 1}, {50, 1, 0}, {0, 7, 1});
  check_layout({3, 40, 20, 2}, {1600, 40, 2, 1}, {40, 0, 2, 1}, {0, 2, 0, 1});
  check_layout({70, 40, 6}, {1, 420, 70}, {240, 6, 1}, {6, 0, 1});
}
TEST_P(BinaryContract, MixesLayouts) {
  check_layout({40, 50}, {50, 1}, {1, 40}, {50, 1});
  check_layout({2, 3, 4, 5}, {60, 1, 15, 3}, {60, 20, 5, 1}, {60, 1, 15, 3});
  check_layout({0, 4}, {4, 1}, {4, 1}, {4, 1});
}

TEST_P(BinaryContract, GradientsMatchDifferences) {
  for_each_op([&](BinaryOp op, const OpTraits& line) {
    const auto a = array({300}).randomize(1, line.low, line.high);
    const auto b = array({300}).randomize(2, line.low, line.high);
    const auto dout = array({300}).randomize(3), da = array({300}), db = array({300});
    const bool saves = line.saves == Saves::inputs;
    backend().elementwise.binary_backward({.op = op,
                                           .da = da,
                                           .db = db,
                                           .dout = dout,
                                           .a = saves ? a.view() : ArrayView{},
                                           .b = saves ? b.view() : ArrayView{},
                                           .constants = constants},
                                          stream());
    Values expected_a, expected_b;
    const Values x = a.get(), y = b.get(), g = dout.get();
    const double h = 1e-6;
    for (std::size_t i = 0; i < x.size(); ++i) {
      expected_a.push_back(
          g[i] * (formula(op, x[i] + h, y[i], constants) - formula(op, x[i] - h, y[i], constants)) /
          (2 * h));
      expected_b.push_back(
          g[i] * (formula(op, x[i], y[i] + h, constants) - formula(op, x[i], y[i] - h, constants)) /
          (2 * h));
    }
    // Where the 16-bit operands are equal, these have no derivative to difference.
    const bool leaves_rest = op == BinaryOp::remainder || op == BinaryOp::fmod;
    const double equal_a = op == BinaryOp::floor_divide ? 0 : leaves_rest ? 1 : 0.5;
    const double equal_b = leaves_rest ? -1 : equal_a;
    if (equal_a != 0.5 || op == BinaryOp::maximum || op == BinaryOp::minimum)
      for (std::size_t i = 0; i < x.size(); ++i)
        if (std::abs(x[i] - y[i]) < 1e-5) {
          expected_a[i] = equal_a * g[i];
          expected_b[i] = equal_b * g[i];
        }
    EXPECT_TRUE(close(da.get(), expected_a, 1e-7 + 4 * tolerance()));
    EXPECT_TRUE(close(db.get(), expected_b, 1e-7 + 4 * tolerance()));
  });
}

TEST_P(BinaryContract, GivesOneGradientOrBothOfAnyLayouts) {
  struct Layouts {
    Shape shape;
    Strides to, from, left, right;
  };
  for (const auto& [shape, to, from, left, right] :
       {Layouts{{16, 64}, {64, 1}, {64, 1}, {64, 1}, {128, 1}},
        Layouts{{16, 64}, {64, 1}, {64, 1}, {64, 1}, {1, 0}},
        Layouts{{7, 33}, {33, 1}, {33, 1}, {0, 1}, {1, 7}},
        Layouts{{3, 4, 5}, {20, 5, 1}, {20, 1, 4}, {0, 0, 0}, {20, 5, 1}},
        Layouts{{0, 4}, {4, 1}, {4, 1}, {4, 1}, {4, 1}}}) {
    const auto a = array(shape, left).randomize(1), b = array(shape, right).randomize(2);
    const auto dout = array(shape, from).randomize(3);
    const auto run = [&](const ArrayView& da, const ArrayView& db) {
      backend().elementwise.binary_backward(
          {.op = BinaryOp::mul, .da = da, .db = db, .dout = dout, .a = a, .b = b}, stream());
    };
    const auto da = array(shape, to), db = array(shape, to);
    run(da, db);
    const Values x = a.get(), y = b.get(), g = dout.get();
    Values expected_a, expected_b;
    for (std::size_t i = 0; i < x.size(); ++i) {
      expected_a.push_back(g[i] * y[i]);
      expected_b.push_back(g[i] * x[i]);
    }
    EXPECT_TRUE(close(da.get(), expected_a, tolerance()));
    EXPECT_TRUE(close(db.get(), expected_b, tolerance()));
    const auto only_a = array(shape, to), only_b = array(shape, to);
    run(only_a, {});
    run({}, only_b);
    EXPECT_EQ(only_a.get(), da.get());
    EXPECT_EQ(only_b.get(), db.get());
  }
}

// On a CPU there are two ways, which depend on the quotient and on that of neighbours.
TEST_P(BinaryContract, DividesWhateverTheQuotient) {
  auto a = array({3000}).randomize(7, -50.0, 50.0), b = array({3000}).randomize(8, -3.0, 3.0);
  const double inf = INFINITY;
  Values x = a.get(), y = b.get();
  const Values dividends{6, -6, 6, -6, 0.0, -0.0, 5, 5, -5, inf, 5, 0, NAN, 60000, -60000};
  const Values divisors{3, 3, -3, -3, 2, -2, inf, -inf, inf, 2, 0, 0, 1, 0.0078125, 0.0078125};
  std::copy(dividends.begin(), dividends.end(), x.begin() + 1100);
  std::copy(divisors.begin(), divisors.end(), y.begin() + 1100);
  if (dtype() == DType::f32 || dtype() == DType::f64) x[1200] = 0x1p100, y[1200] = 3;
  a.set(x), b.set(y);
  const auto out = array({3000});
  const auto check = [&](BinaryOp op, const auto& formula) {
    SCOPED_TRACE(traits(op).name);
    backend().elementwise.binary({.op = op, .out = out, .a = a, .b = b}, stream());
    const Values found = out.get();
    Values expected = array({3000})
                          .set([&] {
                            Values all;
                            for (std::size_t i = 0; i < found.size(); ++i)
                              all.push_back(formula(a.get()[i], b.get()[i]));
                            return all;
                          }())
                          .get();
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (std::isnan(expected[i]))
        EXPECT_TRUE(std::isnan(found[i])) << i;
      else
        EXPECT_EQ(found[i], expected[i]) << a.get()[i] << " and " << b.get()[i];
      EXPECT_TRUE(std::isnan(found[i]) || std::signbit(found[i]) == std::signbit(expected[i])) << i;
    }
  };
  check(BinaryOp::fmod, [](double p, double q) { return std::fmod(p, q); });
  check(BinaryOp::remainder, [](double p, double q) {
    const double rest = std::fmod(p, q);
    return rest != 0 && (rest < 0) != (q < 0) ? rest + q : rest;
  });
}

TEST_P(BinaryContract, FindsTheAngleOfEveryPoint) {
  auto a = array({3000}).randomize(9, -2.0, 2.0), b = array({3000}).randomize(10, -2.0, 2.0);
  const double inf = INFINITY;
  const Values odd{0.0, -0.0, 1, -1, inf, -inf, NAN, 60000, -60000};
  Values y = a.get(), x = b.get();
  for (std::size_t i = 0; i < odd.size(); ++i)
    for (std::size_t k = 0; k < odd.size(); ++k)
      y[1000 + i * odd.size() + k] = odd[i], x[1000 + i * odd.size() + k] = odd[k];
  if (dtype() == DType::f32 || dtype() == DType::f64)
    y[2000] = 3e38, x[2000] = -2.9e38, y[2001] = 1e-40, x[2001] = 2e-40, y[2002] = 1e-30,
    x[2002] = 1e30;
  a.set(y), b.set(x);
  const auto out = array({3000});
  backend().elementwise.binary({.op = BinaryOp::atan2, .out = out, .a = a, .b = b}, stream());
  Values expected;
  const Values found = out.get(), heights = a.get(), widths = b.get();
  for (std::size_t i = 0; i < heights.size(); ++i) {
    expected.push_back(std::atan2(heights[i], widths[i]));
    EXPECT_TRUE(std::isnan(found[i]) || std::signbit(found[i]) == std::signbit(expected[i])) << i;
  }
  EXPECT_TRUE(close(found, expected, tolerance()));
}

TEST_P(BinaryContract, ComparesAndChooses) {
  const auto a = array({4}).set({1, 2, 3, NAN}), b = array({4}).set({2, 2, 2, 1});
  const auto truth = array(DType::boolean, {4});
  const auto compare = [&](CompareOp op) {
    backend().elementwise.compare({.op = op, .out = truth, .a = a, .b = b}, stream());
    return truth.get();
  };
  EXPECT_EQ(compare(CompareOp::eq), (Values{0, 1, 0, 0}));
  EXPECT_EQ(compare(CompareOp::ne), (Values{1, 0, 1, 1}));
  EXPECT_EQ(compare(CompareOp::le), (Values{1, 1, 0, 0}));
  EXPECT_EQ(compare(CompareOp::gt), (Values{0, 0, 1, 0}));
  EXPECT_EQ(compare(CompareOp::ge), (Values{0, 1, 1, 0}));
  EXPECT_EQ(compare(CompareOp::lt), (Values{1, 0, 0, 0}));
  const auto out = array({4});
  backend().elementwise.where({.out = out, .condition = truth, .a = a, .b = b}, stream());
  EXPECT_EQ(out.get(), (Values{1, 2, 2, 1}));
}

TEST_P(BinaryContract, ComparesAndChoosesAlongShortRows) {
  const Shape shape{1500, 3};
  const auto a = array(shape, {1, 0}).randomize(11), b = array(shape, {0, 1}).randomize(12);
  const auto truth = array(DType::boolean, shape), out = array(shape);
  backend().elementwise.compare({.op = CompareOp::lt, .out = truth, .a = a, .b = b}, stream());
  DeviceArray column(DType::boolean, shape, {1, 0}, GetParam().device);
  column.set(truth.get());
  backend().elementwise.where({.out = out, .condition = column, .a = a, .b = b}, stream());
  const Values x = a.get(), y = b.get(), less = truth.get(), chosen = column.get();
  Values expected;
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(less[i] != 0, x[i] < y[i]) << i;
    expected.push_back(chosen[i] != 0 ? x[i] : y[i]);
  }
  EXPECT_EQ(out.get(), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, BinaryContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

class BinaryIntegers : public ContractTest {};

TEST_P(BinaryIntegers, DivideWithoutTrapping) {
  const double least = dtype() == DType::i64 ? -0x1p63 : -0x1p31;
  const auto a = array({4}).set({7, -7, 5, least}), b = array({4}).set({2, 2, 0, -1});
  const auto out = array({4});
  const auto run = [&](BinaryOp op) {
    backend().elementwise.binary({.op = op, .out = out, .a = a, .b = b}, stream());
  };
  run(BinaryOp::div);
  EXPECT_EQ(out.get(), (Values{3, -3, 0, least}));
  run(BinaryOp::remainder);
  EXPECT_EQ(out.get(), (Values{1, 1, 0, 0}));
  run(BinaryOp::fmod);
  EXPECT_EQ(out.get(), (Values{1, -1, 0, 0}));
  EXPECT_THROW(run(BinaryOp::pow), Unsupported);
}

INSTANTIATE_TEST_SUITE_P(Backends, BinaryIntegers,
                         ::testing::ValuesIn(targets({DType::i64, DType::i32})), target_name);

class BinaryBytes : public ContractTest {};

TEST_P(BinaryBytes, AreComputedModulo256) {
  const auto a = array({4}).set({200, 3, 7, 255}), b = array({4}).set({100, 5, 0, 255});
  const auto run = [&](BinaryOp op, OpConstants constants = {}) {
    const auto out = array({4});
    backend().elementwise.binary({.op = op, .out = out, .a = a, .b = b, .constants = constants},
                                 stream());
    return out.get();
  };
  EXPECT_EQ(run(BinaryOp::add), (Values{44, 8, 7, 254}));
  EXPECT_EQ(run(BinaryOp::sub), (Values{100, 254, 7, 0}));
  EXPECT_EQ(run(BinaryOp::sub, {.alpha = 2.0}), (Values{0, 249, 7, 1}));
  EXPECT_EQ(run(BinaryOp::mul), (Values{32, 15, 0, 1}));
  EXPECT_EQ(run(BinaryOp::div), (Values{2, 0, 0, 1}));
  EXPECT_EQ(run(BinaryOp::floor_divide), (Values{2, 0, 0, 1}));
  EXPECT_EQ(run(BinaryOp::remainder), (Values{0, 3, 0, 0}));
  EXPECT_EQ(run(BinaryOp::fmod), (Values{0, 3, 0, 0}));
  EXPECT_EQ(run(BinaryOp::maximum), (Values{200, 5, 7, 255}));
  EXPECT_THROW(run(BinaryOp::add, {.alpha = 0.5}), InvalidArgument);
  EXPECT_THROW(run(BinaryOp::pow), Unsupported);
}

INSTANTIATE_TEST_SUITE_P(Backends, BinaryBytes, ::testing::ValuesIn(targets({DType::u8})),
                         target_name);

class BinaryTruth : public ContractTest {};

TEST_P(BinaryTruth, HasNoArithmetic) {
  const auto a = array({2}), out = array({2});
  EXPECT_THROW(
      backend().elementwise.binary({.op = BinaryOp::add, .out = out, .a = a, .b = a}, stream()),
      Unsupported);
}

INSTANTIATE_TEST_SUITE_P(Backends, BinaryTruth, ::testing::ValuesIn(targets({DType::boolean})),
                         target_name);

class BinaryMismatch : public ContractTest {};

TEST_P(BinaryMismatch, NamesOpAndDtypes) {
  const auto a = array(DType::f32, {2}).set({1, 2}), out = array(DType::f64, {2});
  try {
    backend().elementwise.binary({.op = BinaryOp::mul, .out = out, .a = a, .b = a}, stream());
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("mul: dtypes f64 and f32"), std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, BinaryMismatch, ::testing::ValuesIn(targets({DType::f32})),
                         target_name);

}  // namespace
}  // namespace lockstep::test
