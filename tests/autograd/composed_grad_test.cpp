#include <cmath>

#include "autograd/grad_check_cases.hpp"
#include "lockstep/nn/activation.hpp"

// Gradients of ops that are compositions of others.

namespace lockstep::test {
namespace {

using testing::expect_gradients;

std::vector<GradCase> activations() {
  const auto apart_from_zero = [] { return Tensors{distinct({3, 4}, -2.02, 2.0)}; };
  return {
      {"selu", [](const Tensors& in) { return selu(in[0]); }, apart_from_zero},
      {"celu", [](const Tensors& in) { return celu(in[0], 0.7); }, apart_from_zero},
      {"logsigmoid", [](const Tensors& in) { return logsigmoid(in[0]); }, apart_from_zero},
      {"softplus_of_beta", [](const Tensors& in) { return scaled_softplus(in[0], 1.5, 2.5); },
       apart_from_zero},
      {"addcmul", [](const Tensors& in) { return addcmul(in[0], in[1], in[2], 0.7); },
       shapes({{3, 4}, {4}, {3, 1}})},
      {"addcdiv", [](const Tensors& in) { return addcdiv(in[0], in[1], in[2], 0.7); },
       shapes({{3, 4}, {4}, {3, 1}}, 0.5, 2.0)},
      {"glu", [](const Tensors& in) { return glu(in[0]); }, shapes({{3, 4}})},
      {"glu_of_rows", [](const Tensors& in) { return glu(in[0].transpose(0, 1), 0); },
       shapes({{3, 4}})},
      {"lerp_by_a_number", [](const Tensors& in) { return lerp(in[0], in[1], 0.7); },
       shapes({{3, 4}, {4}})},
      {"lerp_by_a_small_number", [](const Tensors& in) { return lerp(in[0], in[1], 0.2); },
       shapes({{3, 1}, {3, 4}})},
      {"lerp_by_weights", [](const Tensors& in) { return lerp(in[0], in[1], in[2]); },
       [] {
         return Tensors{uniform({3, 4}), uniform({4}), distinct({3, 1}, -0.1, 1.1)};
       }},
  };
}

// On the CPU alone: which problems a GPU has plans for is asked of those on file.
std::vector<GradCase> other_convolutions() {
  return {
      {"conv_transpose1d",
       [](const Tensors& in) {
         return conv_transpose1d(
             in[0], in[1], in[2],
             {.stride = 2, .padding = 1, .output_padding = 2, .dilation = 3, .groups = 2});
       },
       shapes({{2, 4, 3}, {4, 3, 2}, {6}})},
      {"conv2d_of_same_extents",
       [](const Tensors& in) {
         return conv2d(in[0], in[1], in[2], {.padding = {same_padding, 1}});
       },
       shapes({{1, 2, 4, 3}, {2, 2, 4, 3}, {2}})},
      {"conv1d_of_same_extents",
       [](const Tensors& in) {
         return conv1d(in[0], in[1], {}, {.padding = same_padding, .dilation = 3});
       },
       shapes({{2, 2, 5}, {3, 2, 2}})},
  };
}

std::vector<GradCase> rearrangements() {
  const auto pixels = shapes({{2, 4, 2, 6}});
  return {
      {"pad_by_reflection",
       [](const Tensors& in) {
         return pad(in[0], {1, 3, 2, 0}, PaddingMode::reflect);
       },
       shapes({{2, 3, 4}})},
      {"pad_by_replication",
       [](const Tensors& in) {
         return pad(in[0], {1, 5, 2, 0, 1, 0}, PaddingMode::replicate);
       },
       shapes({{2, 3, 4}})},
      {"pad_in_a_circle",
       [](const Tensors& in) {
         return pad(in[0].transpose(0, 1), {2, 1, 0, 3}, PaddingMode::circular);
       },
       shapes({{2, 3}})},
      {"repeat_interleave", [](const Tensors& in) { return repeat_interleave(in[0], 3, 1); },
       shapes({{2, 3, 2}})},
      {"repeat_interleave_by_counts",
       [](const Tensors& in) {
         return repeat_interleave(in[0], tensor<std::int64_t>({2, 0, 3}), -2);
       },
       shapes({{2, 3, 2}})},
      {"diag", [](const Tensors& in) { return diag(in[0], -1); }, shapes({{3}})},
      {"diag_of_a_matrix", [](const Tensors& in) { return diag(in[0], 1); }, shapes({{3, 4}})},
      {"pixel_shuffle", [](const Tensors& in) { return pixel_shuffle(in[0], 2); }, pixels},
      {"pixel_unshuffle", [](const Tensors& in) { return pixel_unshuffle(in[0], 2); }, pixels},
  };
}

std::vector<GradCase> statistics() {
  const auto apart_from_zero = [] { return Tensors{distinct({3, 4}, -2.02, 2.0)}; };
  const auto norm_of = [](double p) {
    return [p](const Tensors& in) { return vector_norm(in[0], p, 1); };
  };
  const auto distance = [](double p) {
    return [p](const Tensors& in) { return cdist(in[0], in[1], p); };
  };
  const auto points = shapes({{2, 3, 4}, {5, 4}});
  return {
      {"norm_of_order_1", norm_of(1), apart_from_zero},
      {"norm_of_order_2", norm_of(2), apart_from_zero},
      {"norm_of_order_3", norm_of(3), apart_from_zero},
      {"norm_of_order_half", norm_of(0.5), apart_from_zero},
      {"norm_of_order_minus_2", norm_of(-2), apart_from_zero},
      {"norm_of_infinite_order", norm_of(INFINITY),
       [] {
         return Tensors{distinct({3, 4}, 1, 2)};
       }},
      {"norm_of_the_least", norm_of(-INFINITY),
       [] {
         return Tensors{distinct({3, 4}, 1, 2)};
       }},
      {"cdist", distance(2), points},
      {"cdist_by_sums", distance(1), points},
      {"cdist_of_order_3", distance(3), points},
      {"median", [](const Tensors& in) { return median(in[0], 0).first; },
       [] {
         return Tensors{distinct({4, 3})};
       }},
      {"quantile",
       [](const Tensors& in) {
         return quantile(in[0], beside(in, tensor<double>({0.1, 0.5, 1.0})), 1);
       },
       [] {
         return Tensors{distinct({2, 5})};
       }},
      {"cumprod", [](const Tensors& in) { return cumprod(in[0], 1); }, shapes({{2, 7}})},
      {"cumprod_of_rows", [](const Tensors& in) { return cumprod(in[0].transpose(0, 1), 1); },
       shapes({{4, 3}})},
      {"cumprod_of_zeros",
       [](const Tensors& in) {
         return cumprod(in[0] * beside(in, tensor<double>({1, 0, 1, 1, 0})) + in[1], 0);
       },
       [] {
         return Tensors{uniform({5}, 0.5, 1.5), zeros({5}, DType::f64)};
       }},
  };
}

class ComposedGradients : public ::testing::TestWithParam<GradCase> {};

TEST_P(ComposedGradients, MatchDifferences) {
  expect_gradients(GetParam().op, GetParam().inputs());
}

TEST_P(ComposedGradients, OfGradientsMatchDifferences) {
  testing::expect_second_gradients(GetParam().op, GetParam().inputs());
}

TEST_P(ComposedGradients, LeaveNothingAlive) { expect_no_leak(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Activations, ComposedGradients, ::testing::ValuesIn(activations()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(OtherConvolutions, ComposedGradients,
                         ::testing::ValuesIn(other_convolutions()), case_name);
INSTANTIATE_TEST_SUITE_P(Rearrangements, ComposedGradients, ::testing::ValuesIn(rearrangements()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Statistics, ComposedGradients, ::testing::ValuesIn(statistics()),
                         case_name);

class ComposedGradientsOnGpu : public GradCasesOnGpu {};

TEST_F(ComposedGradientsOnGpu, OfActivationsMatchDifferences) { check(activations()); }
TEST_F(ComposedGradientsOnGpu, OfRearrangementsMatchDifferences) { check(rearrangements()); }
TEST_F(ComposedGradientsOnGpu, OfStatisticsMatchDifferences) { check(statistics()); }

/// The gradient of the sum of what an op gives.
template <class Op>
std::vector<double> gradient(const std::vector<double>& at, Op&& op) {
  Tensor x = from_span<double>(at, {std::ssize(at)}).set_requires_grad();
  sum(op(x)).backward();
  return x.grad().to_vector<double>();
}

// By PyTorch: masked where differences would divide by 0.
TEST(ComposedGradientsAtZero, AreZeroForNorms) {
  using Numbers = std::vector<double>;
  for (const double p : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, double{INFINITY}, -1.0}) {
    const auto norm_of = [p](const Tensor& x) { return vector_norm(x, p); };
    EXPECT_EQ(gradient({0, 0}, norm_of), (Numbers{0, 0})) << p;
  }
  EXPECT_EQ(gradient({0, 4}, [](const Tensor& x) { return vector_norm(x, 0.5); }), (Numbers{0, 1}));
  EXPECT_EQ(gradient({1, 0},
                     [](const Tensor& x) {
                       return cdist(x.reshape({2, 1}), x.reshape({2, 1}));
                     }),
            (Numbers{2, -2}));
  EXPECT_EQ(gradient({0, 0}, [](const Tensor& x) { return normalize(x, 3, 0); }),
            (Numbers{1e12, 1e12}));
}

// PyTorch's at the bounds, of which an infinite one is none, and where PReLU bends.
TEST(ComposedGradientsAtTies, OfLimitsAreThoseBeyond) {
  using Numbers = std::vector<double>;
  const Numbers at{-INFINITY, -1, 0, 1, 6, INFINITY, NAN};
  EXPECT_EQ(gradient(at, [](const Tensor& x) { return clamp(x, -1, 1); }),
            (Numbers{0, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(gradient(at, [](const Tensor& x) { return clamp_min(x, -1); }),
            (Numbers{0, 0, 1, 1, 1, 1, 0}));
  EXPECT_EQ(gradient(at, [](const Tensor& x) { return clamp_max(x, 1); }),
            (Numbers{1, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(gradient(at, [](const Tensor& x) { return nn::make<nn::ReLU6>()(x); }),
            (Numbers{0, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(
      gradient({-2, 0, 2}, [](const Tensor& x) { return prelu(x, full({1}, 0.25, x.options())); }),
      (Numbers{0.25, 0.25, 1}));
}

TEST(ComposedGradientsAtInfinity, AreNumbers) {
  EXPECT_EQ(gradient({INFINITY, -INFINITY}, [](const Tensor& x) { return celu(x); }),
            (std::vector<double>{1, 0}));
}

// By PyTorch; the p-norms of a line with NaN have no slope anywhere.
TEST(ComposedGradientsAtNan, AreNan) {
  const auto celu_of = gradient({-1, NAN, 2}, [](const Tensor& x) { return celu(x, 2); });
  EXPECT_TRUE(std::isnan(celu_of[1]));
  EXPECT_EQ(celu_of[2], 1);
  for (const double p : {0.5, 3.0})
    for (const double slope :
         gradient({3, NAN, -3, 1}, [p](const Tensor& x) { return vector_norm(x, p); }))
      EXPECT_TRUE(std::isnan(slope)) << p;
  EXPECT_EQ(gradient({1, NAN, NAN, 2}, [](const Tensor& x) { return median(x); }),
            (std::vector<double>{0, 0.5, 0.5, 0}));
}

TEST(ComposedGradients, OfTheMedianAreSharedByItsEquals) {
  const auto median_of = [](const Tensor& x) { return median(x.reshape({2, -1})); };
  EXPECT_EQ(gradient({1, 2, 2, 5, 2, 2}, median_of),
            (std::vector<double>{0, 0.25, 0.25, 0, 0.25, 0.25}));
  EXPECT_EQ(gradient({-INFINITY, 3, -INFINITY, -INFINITY}, median_of),
            (std::vector<double>{1 / 3.0, 0, 1 / 3.0, 1 / 3.0}));
}

}  // namespace
}  // namespace lockstep::test
