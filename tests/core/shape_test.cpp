#include "lockstep/core/shape.hpp"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Shape, CountsElements) {
  EXPECT_EQ(numel({2, 3, 4}), 24);
  EXPECT_EQ(numel({}), 1);
  EXPECT_EQ(numel({5, 0, 7}), 0);
}

TEST(Shape, RefusesNegativeExtentsAndOverflow) {
  EXPECT_THROW(numel({2, -1}), InvalidArgument);
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_THROW(numel({huge, 3}), InvalidArgument);
  EXPECT_THROW(numel({huge, 0, huge}), InvalidArgument);
}

TEST(Shape, RefusesMoreThanEightDimensions) {
  EXPECT_THROW((Shape{1, 2, 3, 4, 5, 6, 7, 8, 9}), InvalidArgument);
}

TEST(Shape, BroadcastsByNumpyRules) {
  EXPECT_EQ(broadcast_shapes({3, 1, 5}, {2, 1}), (Shape{3, 2, 5}));
  EXPECT_EQ(broadcast_shapes({4}, {}), (Shape{4}));
  EXPECT_EQ(broadcast_shapes({0, 1}, {1, 3}), (Shape{0, 3}));
  EXPECT_THROW(broadcast_shapes({3}, {2}), InvalidArgument);
}

TEST(Shape, KnowsContiguity) {
  EXPECT_TRUE(is_contiguous({2, 3}, contiguous_strides({2, 3})));
  EXPECT_TRUE(is_contiguous({2, 1, 3}, {3, 99, 1}));
  EXPECT_FALSE(is_contiguous({2, 3}, {1, 2}));
  EXPECT_EQ(channels_last_strides({2, 3, 4, 5}), (Strides{60, 1, 15, 3}));
}

TEST(Shape, WrapsNegativeDimensions) {
  EXPECT_EQ(wrap_dim(-1, 3), 2);
  EXPECT_THROW(wrap_dim(3, 3), InvalidArgument);
  EXPECT_THROW(wrap_dim(-4, 3), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
