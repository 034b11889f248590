#include <span>

#include <gtest/gtest.h>

#include "arguments/elementwise.hpp"
#include "autograd/grad_check_cases.hpp"
#include "backend/backend.hpp"
#include "contract/formulas.hpp"
#include "functional/op_list.hpp"
#include "support/call_op.hpp"
#include "support/chosen_op.hpp"

// Every line of ops.def, over its own test domain, in the layouts that broadcasting and views give.
// A new op is covered by its line; the functions here only call it by name.

namespace lockstep {
static void PrintTo(const OpTraits& op, std::ostream* out) { *out << op.name; }
}  // namespace lockstep

namespace lockstep::test {
namespace {

Tensor call(UnaryOp op, const Tensor& x) { return testing::call(op, x, test_constants); }

Tensor call(BinaryOp op, const Tensor& a, const Tensor& b) {
  return testing::call(op, a, b, {.alpha = 0.7});
}

std::string op_name(const ::testing::TestParamInfo<OpTraits>& info) {
  return std::string(info.param.name);
}

std::size_t index_of(std::span<const OpTraits> ops, const OpTraits& line) {
  std::size_t i = 0;
  while (ops[i].name != line.name) ++i;
  return i;
}

/// One line of ops.def on a device. The gradient of every way to call it.
class UnaryLine {
 public:
  UnaryLine(const OpTraits& line, Device device)
      : line_(line), device_(device), op_(static_cast<UnaryOp>(index_of(unary_ops, line))) {}

  Tensor input(const Shape& shape) const {
    return uniform(shape, line_.low, line_.high).to(device_);
  }
  void match_differences() const {
    testing::expect_gradients([&](const Tensors& in) { return call(op_, in[0]); },
                              {input({3, 5, 7})});
  }
  void match_differences_over_views() const {
    testing::expect_gradients(
        [&](const Tensors& in) { return call(op_, in[0].transpose(0, 1).slice(0, 1, 4, 2)); },
        {input({3, 5})});
    testing::expect_gradients(
        [&](const Tensors& in) {
          return call(op_, in[0].expand({2, 3, 4}));
        },
        {input({3, 1})});
  }
  void match_differences_of_gradients() const {
    testing::expect_second_gradients([&](const Tensors& in) { return call(op_, in[0]); },
                                     {input({3, 5})});
  }
  void take_empty_tensors_and_scalars() const {
    testing::expect_gradients([&](const Tensors& in) { return call(op_, in[0]); }, {input({})});
    const Tensor nothing = empty({2, 0}, {DType::f64, device_}).set_requires_grad();
    sum(call(op_, nothing)).backward();
    EXPECT_EQ(nothing.grad().shape(), (Shape{2, 0}));
  }
  void leave_nothing_alive() const {
    expect_no_leak({"unary", [&](const Tensors& in) { return call(op_, in[0]); },
                    [&] {
                      return Tensors{input({3, 4})};
                    }},
                   device_);
  }

 private:
  const OpTraits& line_;
  Device device_;
  UnaryOp op_;
};

class UnaryGradients : public ::testing::TestWithParam<OpTraits> {
 protected:
  UnaryLine line{GetParam(), cpu};
};

TEST_P(UnaryGradients, MatchDifferences) { line.match_differences(); }
TEST_P(UnaryGradients, MatchDifferencesOverViews) { line.match_differences_over_views(); }
TEST_P(UnaryGradients, OfGradientsMatchDifferences) { line.match_differences_of_gradients(); }
TEST_P(UnaryGradients, TakeEmptyTensorsAndScalars) { line.take_empty_tensors_and_scalars(); }
TEST_P(UnaryGradients, LeaveNothingAlive) { line.leave_nothing_alive(); }

INSTANTIATE_TEST_SUITE_P(OpsDef, UnaryGradients, ::testing::ValuesIn(unary_ops), op_name);

/// As UnaryLine, for two operands.
class BinaryLine {
 public:
  BinaryLine(const OpTraits& line, Device device)
      : line_(line), device_(device), op_(static_cast<BinaryOp>(index_of(binary_ops, line))) {}

  Tensor input(const Shape& shape) const {
    return uniform(shape, line_.low, line_.high).to(device_);
  }
  void match_differences(const Shape& a, const Shape& b) const {
    testing::expect_gradients([&](const Tensors& in) { return call(op_, in[0], in[1]); },
                              {input(a), input(b)});
  }
  void match_differences_over_views() const {
    testing::expect_gradients(
        [&](const Tensors& in) {
          return call(op_, in[0].transpose(0, 1), in[1].slice(1, 0, 6, 2));
        },
        {input({3, 4}), input({4, 6})});
  }
  void match_differences_of_gradients(const Shape& a, const Shape& b) const {
    testing::expect_second_gradients([&](const Tensors& in) { return call(op_, in[0], in[1]); },
                                     {input(a), input(b)});
  }

 private:
  const OpTraits& line_;
  Device device_;
  BinaryOp op_;
};

class BinaryGradients : public ::testing::TestWithParam<OpTraits> {
 protected:
  void check(const Shape& a, const Shape& b) const { line.match_differences(a, b); }
  BinaryLine line{GetParam(), cpu};
};

TEST_P(BinaryGradients, MatchDifferences) { check({3, 5, 7}, {3, 5, 7}); }
TEST_P(BinaryGradients, MatchDifferencesOverARow) { check({4, 5}, {5}); }
TEST_P(BinaryGradients, MatchDifferencesOverAColumn) { check({4, 5}, {4, 1}); }
TEST_P(BinaryGradients, MatchDifferencesWhereBothAreRepeated) { check({3, 1, 5}, {2, 1}); }
TEST_P(BinaryGradients, MatchDifferencesOverAScalar) { check({}, {2, 3}); }
TEST_P(BinaryGradients, OfGradientsMatchDifferences) {
  line.match_differences_of_gradients({3, 5}, {3, 5});
  line.match_differences_of_gradients({3, 1, 5}, {2, 1});
}
TEST_P(BinaryGradients, MatchDifferencesOverViews) { line.match_differences_over_views(); }

INSTANTIATE_TEST_SUITE_P(OpsDef, BinaryGradients, ::testing::ValuesIn(binary_ops), op_name);

class ElementwiseGradientsOnGpu : public testing::OnGpu {};

TEST_F(ElementwiseGradientsOnGpu, OfEveryUnaryOpMatchDifferences) {
  for (const std::size_t i : testing::chosen(unary_ops)) {
    const OpTraits& each = unary_ops[i];
    SCOPED_TRACE(each.name);
    const UnaryLine line(each, device);
    line.match_differences();
    line.match_differences_over_views();
    line.take_empty_tensors_and_scalars();
    line.leave_nothing_alive();
  }
}

TEST_F(ElementwiseGradientsOnGpu, OfEveryBinaryOpMatchDifferences) {
  for (const OpTraits& each : binary_ops) {
    SCOPED_TRACE(each.name);
    const BinaryLine line(each, device);
    line.match_differences({3, 5, 7}, {3, 5, 7});
    line.match_differences({4, 5}, {5});
    line.match_differences({4, 5}, {4, 1});
    line.match_differences({3, 1, 5}, {2, 1});
    line.match_differences({}, {2, 3});
    line.match_differences_over_views();
  }
}

TEST_F(ElementwiseGradientsOnGpu, OfWhereAndNumbersMatchDifferences) {
  const Tensor choice = tensor<bool>({true, false, true}).reshape({3, 1}).to(device);
  testing::expect_gradients([&](const Tensors& in) { return where(choice, in[0], in[1]); },
                            on_device({uniform({2}), uniform({3, 2})}, device));
  testing::expect_gradients(
      [](const Tensors& in) { return (2.0 * in[0] + 1.0) / 3.0 - (1.0 - in[0]) / (in[0] + 5.0); },
      {uniform({4}).to(device)});
}

TEST(ElementwiseGradients, ShareTiesOfMaximumEvenly) {
  const Tensor a = tensor<double>({1.0, 2.0}).set_requires_grad();
  const Tensor b = tensor<double>({1.0, 3.0}).set_requires_grad();
  sum(maximum(a, b)).backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{0.5, 0.0}));
  EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{0.5, 1.0}));
}

TEST(ElementwiseGradients, PassThroughTheChosenSideOfWhere) {
  const Tensor choice = tensor<bool>({true, false, true}).reshape({3, 1});
  testing::expect_gradients([&](const Tensors& in) { return where(choice, in[0], in[1]); },
                            {uniform({2}), uniform({3, 2})});
}

TEST(ElementwiseGradients, FlowThroughOperatorsWithNumbers) {
  testing::expect_gradients(
      [](const Tensors& in) {
        const Tensor& x = in[0];
        return (2.0 * x + 1.0 - x * 0.5) / 3.0 - (1.0 - x) + (-x) / (x + 5.0);
      },
      {uniform({4})});
}

}  // namespace
}  // namespace lockstep::test
