#include "autograd/grad_check_cases.hpp"

namespace lockstep::test {
namespace {

std::vector<GradCase> discounted_sum_cases() {
  const auto along = [](int dim, bool reverse) {
    return [=](const Tensors& in) {
      return discounted_sum(in[0].transpose(0, 1), dim, 0.75, reverse);
    };
  };
  const auto inputs = [] { return Tensors{distinct({3, 4}, -1.1, 1.3)}; };
  return {{"rows", along(1, false), inputs}, {"from the end", along(0, true), inputs}};
}

TEST(DiscountedSum, GradientsMatchDifferences) {
  for (const GradCase& each : discounted_sum_cases())
    testing::expect_gradients(each.op, each.inputs());
}

TEST(DiscountedSum, OfRewardsIsTheReturn) {
  const Tensor rewards = tensor<float>({1, 0, 4});
  EXPECT_EQ(discounted_sum(rewards, 0, 0.5, true).to_vector<float>(),
            (std::vector<float>{2, 2, 4}));
}

class DiscountedSumOnGpu : public GradCasesOnGpu {};

TEST_F(DiscountedSumOnGpu, GradientsMatchDifferences) { check(discounted_sum_cases()); }

}  // namespace
}  // namespace lockstep::test
