#include "arguments/reduction.hpp"
#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

class DiscountedSumContract : public ContractTest {};

TEST_P(DiscountedSumContract, DiscountsWhatCameBefore) {
  const auto x = array({2, 3}).set({1, 2, 3, 4, 0, -4}), y = array({2, 3});
  backend().reduction.discounted_sum({.out = y, .in = x, .dim = 1, .factor = 0.5}, stream());
  EXPECT_EQ(y.get(), (Values{1, 2.5, 4.25, 4, 2, -3}));
  backend().reduction.discounted_sum({.out = y, .in = x, .dim = 0, .factor = 0.5, .reverse = true},
                                     stream());
  EXPECT_EQ(y.get(), (Values{3, 2, 1, 4, 0, -4}));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, DiscountedSumContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
