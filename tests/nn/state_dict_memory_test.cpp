#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"

// States whose values lie in the memory of the module that loads them.

namespace lockstep {
namespace {

struct Pair : nn::Module {
  nn::Parameter a{this, "a", full({2, 2}, 1.0)}, b{this, "b", full({2, 2}, 2.0)};
};

Tensor counted() { return tensor<float>({0, 1, 2, 3}).reshape({2, 2}); }

TEST(StateDictInOwnMemory, ExchangesParameters) {
  const auto pair = nn::make<Pair>();
  pair->load_state_dict({{"a", pair->b.detach()}, {"b", pair->a.detach()}});
  EXPECT_TRUE(equal(pair->a, full({2, 2}, 2.0)));
  EXPECT_TRUE(equal(pair->b, full({2, 2}, 1.0)));
}

TEST(StateDictInOwnMemory, TakesTransposedViewsOfThem) {
  const auto pair = nn::make<Pair>();
  pair->load_state_dict({{"a", ones({2, 2})}, {"b", counted()}});
  pair->load_state_dict({{"a", zeros({2, 2})}, {"b", pair->b.detach().t()}});
  EXPECT_TRUE(equal(pair->a, zeros({2, 2})));
  EXPECT_TRUE(equal(pair->b, counted().t()));
}

}  // namespace
}  // namespace lockstep
