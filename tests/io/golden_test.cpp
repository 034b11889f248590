#include "support/golden.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "lockstep/tensor/factories.hpp"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;

TEST(GoldenFiles, AllCasesLoad) {
  std::size_t count = 0;
  for (const char* file :
       {"elementwise", "reduce", "shape", "matmul", "loss", "norm", "conv", "rnn"})
    for (const auto& item : load_golden(file)) {
      EXPECT_FALSE(item.inputs.empty()) << item.name;
      EXPECT_FALSE(item.outputs.empty()) << item.name;
      EXPECT_EQ(item.grads.size(), item.inputs.size()) << item.name;
      ++count;
    }
  EXPECT_EQ(count, 161u);
}

TEST(GoldenFiles, CasesCarryTheirArguments) {
  const auto norm = load_golden_case("norm", "layer_norm_2d");
  EXPECT_EQ(norm.op, "layer_norm");
  EXPECT_EQ(norm.args.dims("normalized_shape"), (Dims{5, 7}));
  EXPECT_EQ(norm.args.number("eps"), 1e-5);
  EXPECT_FALSE(norm.args.has("weight"));
  EXPECT_EQ(norm.args.integer("absent", 4), 4);
  const auto loss = load_golden_case("loss", "cross_entropy_mean");
  EXPECT_EQ(loss.args.text("reduction"), "mean");
  EXPECT_TRUE(loss.grads[0].defined());
  EXPECT_FALSE(loss.grads[1].defined());
  EXPECT_THROW(load_golden_case("loss", "none"), InvalidArgument);
}

TEST(GoldenComparison, MeasuresAgainstTheLargestMagnitude) {
  const Tensor expected = tensor<double>({1e-8, 100.0});
  expect_close(tensor<double>({2e-8, 100.0}), expected, 1e-9);
  EXPECT_NONFATAL_FAILURE(expect_close(tensor<double>({1e-6, 100.0}), expected, 1e-9, "x"),
                          "element 0");
  EXPECT_NONFATAL_FAILURE(expect_close(tensor<double>({1e-8}), expected, "x"), "shape");
  EXPECT_NONFATAL_FAILURE(expect_close(tensor<double>({NAN, 100.0}), expected, "x"), "nan");
  EXPECT_NONFATAL_FAILURE(expect_close(Tensor(), expected, "x"), "actual tensor is undefined");
}

// The first values of conv1.weight, computed once by the README's rule in Python.
TEST(FillRule, GivesTheValuesOfTheReadme) {
  const Tensor matrix = fill_rule("conv1.weight", {2, 3});
  const Tensor vector = fill_rule("bn1.weight", {3});
  const Tensor bias = fill_rule("bn1.bias", {2});
  EXPECT_THAT(matrix.flat<float>(), ElementsAre(0.0901498795f, 0.490323424f, -0.954156637f,
                                                0.472395539f, -0.261299729f, 0.928545952f));
  EXPECT_THAT(vector.flat<float>(), ElementsAre(0.972040772f, 1.0648818f, 1.01383758f));
  EXPECT_THAT(bias.flat<float>(), ElementsAre(-0.0655607581f, -0.0919690877f));
}

}  // namespace
}  // namespace lockstep::testing
