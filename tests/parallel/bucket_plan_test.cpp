#include "lockstep/parallel/bucket_plan.hpp"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

std::vector<std::size_t> in_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

TEST(BucketPlan, PutsTheSmallBucketLast) {
  const std::vector<ParameterInfo> parameters(10, {.numel = 100});
  const auto plan = plan_buckets(parameters, in_order(10), {.last_bytes = 400, .bytes = 1200});
  ASSERT_EQ(plan.size(), 4u);
  EXPECT_EQ(plan.back().parameters, (std::vector<std::size_t>{9}));
  EXPECT_EQ(plan[2].parameters, (std::vector<std::size_t>{6, 7, 8}));
  EXPECT_EQ(plan[0].parameters, (std::vector<std::size_t>{0, 1, 2}));
}

TEST(BucketPlan, NeverSplitsAParameter) {
  const std::vector<ParameterInfo> parameters{{.numel = 1'000'000}, {.numel = 1}};
  const auto plan = plan_buckets(parameters, in_order(2), {.last_bytes = 1, .bytes = 1});
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_GE(plan[0].numel, 1'000'000);
}

TEST(BucketPlan, KeepsDtypesApart) {
  const std::vector<ParameterInfo> parameters{
      {.numel = 8, .dtype = DType::f32}, {.numel = 8, .dtype = DType::bf16}, {.numel = 8}};
  const auto plan = plan_buckets(parameters, in_order(3));
  ASSERT_EQ(plan.size(), 2u);
  for (const Bucket& bucket : plan)
    for (const std::size_t index : bucket.parameters)
      EXPECT_EQ(parameters[index].dtype, bucket.dtype);
}

/// Where the last of a bucket's gradients stands in the order.
std::size_t completed_at(const Bucket& bucket, const std::vector<std::size_t>& order) {
  std::size_t last = 0;
  for (const std::size_t index : bucket.parameters)
    last =
        std::max(last, static_cast<std::size_t>(std::ranges::find(order, index) - order.begin()));
  return last;
}

/// Layers of a large bf16 weight and a small f32 norm, and their gradients from the last one on.
struct MixedModel {
  explicit MixedModel(std::size_t layers) : order(in_order(2 * layers)) {
    for (std::size_t layer = 0; layer < layers; ++layer) {
      parameters.push_back({.numel = 512 * 1024, .dtype = DType::bf16});
      parameters.push_back({.numel = 256, .dtype = DType::f32});
    }
    std::ranges::reverse(order);
  }
  std::vector<ParameterInfo> parameters;
  std::vector<std::size_t> order;
};

// A bucket that waits for almost the last gradient would hold back all those launched after it.
TEST(BucketPlan, LaunchesBucketsOfSeveralDtypesInTheOrderInWhichTheyAreComplete) {
  const MixedModel model(8);
  const auto plan =
      plan_buckets(model.parameters, model.order,
                   {.last_bytes = std::size_t{1} << 20, .bytes = std::size_t{2} << 20});
  ASSERT_GT(plan.size(), 3u);
  EXPECT_EQ(plan.front().dtype, DType::bf16);
  EXPECT_EQ(plan.back().parameters, (std::vector<std::size_t>{0}));
  for (std::size_t b = 1; b < plan.size(); ++b)
    EXPECT_LT(completed_at(plan[b - 1], model.order), completed_at(plan[b], model.order));
}

TEST(BucketPlan, EndsWithASmallBucketOfEachDtype) {
  const MixedModel model(8);
  const auto plan = plan_buckets(model.parameters, model.order,
                                 {.last_bytes = 2048, .bytes = std::size_t{2} << 20});
  const auto bytes = [](const Bucket& bucket) {
    return static_cast<std::size_t>(bucket.numel) * size_of(bucket.dtype);
  };
  EXPECT_EQ(plan[plan.size() - 1].parameters, (std::vector<std::size_t>{0}));
  EXPECT_EQ(plan[plan.size() - 2].dtype, DType::f32);
  EXPECT_EQ(bytes(plan[plan.size() - 2]), 2048u);
}

TEST(BucketPlan, AlignsEveryGradientTo64Bytes) {
  const std::vector<ParameterInfo> parameters{{.numel = 3}, {.numel = 17}, {.numel = 1}};
  const auto plan = plan_buckets(parameters, in_order(3));
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].offsets, (std::vector<std::int64_t>{0, 16, 48}));
  EXPECT_EQ(plan[0].numel, 64);
}

TEST(BucketPlan, AlignsGradientsAndPartsOnAGpuAsItsMemoryIs) {
  const std::vector<ParameterInfo> parameters{{.numel = 1, .device = cuda(0)},
                                              {.numel = 65, .device = cuda(0)},
                                              {.numel = 64, .device = cuda(0)}};
  const auto plan = plan_buckets(parameters, in_order(3), {}, 3);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].offsets, (std::vector<std::int64_t>{0, 64, 192}));
  EXPECT_EQ(plan[0].numel, 3 * 128) << "three parts of a multiple of 256 bytes";
  EXPECT_EQ(bytes_in_bucket(parameters[0]), 256u);
}

TEST(BucketPlan, CoversEachParameterOnceForAnyCap) {
  std::vector<ParameterInfo> parameters;
  for (std::int64_t i = 0; i < 50; ++i) parameters.push_back({.numel = 1 + i * 7 % 23});
  for (const std::size_t cap : {1u, 64u, 1000u, 1u << 20}) {
    std::vector<std::size_t> seen;
    for (const Bucket& bucket : plan_buckets(parameters, in_order(50), {cap, cap}))
      seen.insert(seen.end(), bucket.parameters.begin(), bucket.parameters.end());
    EXPECT_EQ(seen, in_order(50)) << "cap " << cap;
  }
}

TEST(BucketPlan, RefusesAnOrderThatIsNoPermutation) {
  const std::vector<ParameterInfo> parameters(3, {.numel = 1});
  const std::vector<std::size_t> twice{0, 1, 1}, outside{0, 1, 3}, missing{0, 1};
  EXPECT_THROW(plan_buckets(parameters, twice), InvalidArgument);
  EXPECT_THROW(plan_buckets(parameters, outside), InvalidArgument);
  EXPECT_THROW(plan_buckets(parameters, missing), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::parallel
