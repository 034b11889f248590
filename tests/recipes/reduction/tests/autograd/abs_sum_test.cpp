#include "autograd/grad_check_cases.hpp"

namespace lockstep::test {
namespace {

std::vector<GradCase> abs_sum_cases() {
  const auto over = [](const Dims& dims, bool keepdim) {
    return [=](const Tensors& in) { return abs_sum(in[0].transpose(0, 1), dims, keepdim); };
  };
  // Away from the kink at 0.
  const auto inputs = [] { return Tensors{distinct({3, 4}, -1.1, 1.3)}; };
  return {{"all", over({}, false), inputs},
          {"rows", over({1}, false), inputs},
          {"kept", over({0}, true), inputs}};
}

TEST(AbsSum, GradientsMatchDifferences) {
  for (const GradCase& each : abs_sum_cases()) testing::expect_gradients(each.op, each.inputs());
}

TEST(AbsSum, AddsMagnitudes) { EXPECT_EQ(abs_sum(tensor<float>({3, -4, 0})).item(), 7.0); }

class AbsSumOnGpu : public GradCasesOnGpu {};

TEST_F(AbsSumOnGpu, GradientsMatchDifferences) { check(abs_sum_cases()); }

}  // namespace
}  // namespace lockstep::test
