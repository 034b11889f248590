#include "arguments/index.hpp"

#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

class IndexContract : public ContractTest {};

TEST_P(IndexContract, GathersAndScatters) {
  const auto in = array({2, 3}).set({1, 2, 3, 4, 5, 6}), out = array({2, 2});
  const auto index = array(DType::i64, {2, 2}).set({2, 2, 0, 1});
  backend().index.gather({.out = out, .in = in, .index = index, .dim = 1}, stream());
  EXPECT_EQ(out.get(), (Values{3, 3, 4, 5}));
  const auto sum = array({2, 3}).set(Values(6, 1.0));
  backend().index.scatter_add({.out = sum, .in = out, .index = index, .dim = 1}, stream());
  EXPECT_EQ(sum.get(), (Values{1, 1, 7, 5, 6, 1}));
  if (GetParam().device.is_cuda()) return;
  const auto beyond = array(DType::i64, {2, 2}).set({0, 3, 0, 0});
  EXPECT_THROW(backend().index.gather({.out = out, .in = in, .index = beyond, .dim = 1}, stream()),
               InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, IndexContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
