#include <vector>

#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/factories.hpp"

// A tensor without dimensions counts as a line of one element to ops along a dimension.

namespace lockstep {
namespace {

TEST(Scalars, AreReducedToThemselves) {
  for (const std::int64_t dim : {0, -1}) {
    const Tensor x = scalar(-2.0, {DType::f64}).set_requires_grad();
    for (const Tensor& y :
         {sum(x, dim), mean(x, dim, true), amax(x, dim), cumsum(x, dim), logsumexp(x, dim),
          max(x, dim).first, min(x, dim, true).first, sort(x, dim).first, topk(x, 1, dim).first}) {
      EXPECT_EQ(y.shape(), Shape{});
      EXPECT_EQ(y.item(), -2.0);
      Tensor(x).set_grad({});
      y.backward({}, true);
      EXPECT_EQ(x.grad().item(), 1.0);
    }
    EXPECT_EQ(norm(x, dim).item(), 2.0);
    EXPECT_EQ(softmax(x, dim).item(), 1.0);
    EXPECT_EQ(log_softmax(x, dim).item(), 0.0);
    EXPECT_EQ(normalize(x, 2, dim).item(), -1.0);
    EXPECT_EQ(cosine_similarity(x, x, dim).item(), 1.0);
    EXPECT_EQ(argmax(x, dim).item<std::int64_t>(), 0);
    EXPECT_EQ(argsort(x, dim).shape(), Shape{});
    EXPECT_EQ(max(x, dim).second.shape(), Shape{});
  }
}

TEST(Scalars, HaveNoOtherDimension) {
  const Tensor x = scalar(1.0);
  EXPECT_THROW(sum(x, 1), InvalidArgument);
  EXPECT_THROW(softmax(x, -2), InvalidArgument);
  EXPECT_THROW(argmax(x, 1), InvalidArgument);
  EXPECT_THROW(sum(x, {0, -1}), InvalidArgument);
  EXPECT_THROW(x.size(0), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
