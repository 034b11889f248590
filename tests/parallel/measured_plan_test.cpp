#include "lockstep/parallel/measured_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

/// Parameters whose times and sizes are whole numbers, so that sums of them are exact.
struct Instance {
  Instance(std::size_t count, bool several_dtypes, std::uint32_t seed) : random(seed) {
    const int gap = number(0, 40), latency = number(0, 30), size = number(1, 40);
    double time = number(0, 20);
    for (std::size_t i = 0; i < count; ++i) {
      const bool is_half = several_dtypes && number(0, 2) == 0;
      // A byte takes 1/64 of a second, and gradients are aligned to 64 bytes.
      parameters.push_back({.numel = std::int64_t{16} * number(1, size) * (is_half ? 2 : 1),
                            .dtype = is_half ? DType::bf16 : DType::f32});
      times.ready.push_back(time += number(0, gap));
    }
    times.end = time;
    times.cost = {.latency = static_cast<double>(latency), .seconds_per_byte = 1.0 / 64};
    order.resize(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
  }
  int number(int least, int most) { return std::uniform_int_distribution(least, most)(random); }

  /// When the last reduction ends; pieces of several dtypes are sent once they are whole.
  double end_of(const std::vector<std::size_t>& ends) const {
    double free = 0;
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      double bytes = 0, kinds = 0;
      for (const DType dtype : {DType::f32, DType::bf16}) {
        bool is_there = false;
        for (std::size_t k = begin; k < end; ++k) {
          if (parameters[k].dtype != dtype) continue;
          is_there = true;
          bytes += static_cast<double>(bytes_in_bucket(parameters[k]));
        }
        kinds += is_there;
      }
      free = std::max(free, times.ready[end - 1]) + kinds * times.cost.latency +
             bytes * times.cost.seconds_per_byte;
      begin = end;
    }
    return free;
  }

  std::mt19937 random;
  std::vector<ParameterInfo> parameters;
  std::vector<std::size_t> order;
  BackwardTimes times;
};

struct Best {
  double end = std::numeric_limits<double>::infinity();
  std::size_t pieces = 0;
};

/// All ways to cut, one by one: the earliest end, and the fewest pieces that end `tolerance` later.
Best by_brute_force(const Instance& instance, double tolerance) {
  const std::size_t count = instance.order.size();
  std::vector<std::pair<double, std::size_t>> all;
  for (std::size_t cuts = 0; cuts < std::size_t{1} << (count - 1); ++cuts) {
    std::vector<std::size_t> ends;
    for (std::size_t k = 1; k < count; ++k)
      if (cuts >> (k - 1) & 1) ends.push_back(k);
    ends.push_back(count);
    all.emplace_back(instance.end_of(ends), ends.size());
  }
  Best best{std::ranges::min(all).first, count};
  for (const auto& [end, pieces] : all)
    if (end <= best.end + tolerance) best.pieces = std::min(best.pieces, pieces);
  return best;
}

TEST(MeasuredPlan, CutsAsTheBestOfAllCutsDoes) {
  for (std::uint32_t seed = 0; seed < 600; ++seed) {
    Instance instance(1 + seed % 11, seed % 3 == 0, seed);
    for (const double tolerance : {0.0, 7.0}) {
      const Best best = by_brute_force(instance, tolerance);
      const auto ends =
          cut_for_earliest_end(instance.parameters, instance.order, instance.times, tolerance);
      ASSERT_EQ(ends.back(), instance.order.size());
      EXPECT_LE(instance.end_of(ends), best.end + tolerance) << "seed " << seed;
      EXPECT_EQ(ends.size(), best.pieces) << "seed " << seed;
      const auto plan = cut_buckets(instance.parameters, instance.order, ends);
      EXPECT_LE(predict(plan, instance.times).back().end, best.end + tolerance);
    }
  }
}

TEST(MeasuredPlan, IsNeverLaterThanSizesAlone) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    Instance instance(60, false, seed);
    const auto ends = cut_for_earliest_end(instance.parameters, instance.order, instance.times);
    const double planned =
        predict(cut_buckets(instance.parameters, instance.order, ends), instance.times).back().end;
    for (const std::size_t bytes : {64u, 1024u, 8192u, 1u << 20}) {
      const auto by_sizes = plan_buckets(instance.parameters, instance.order, {bytes / 4, bytes});
      EXPECT_LE(planned, predict(by_sizes, instance.times).back().end) << "seed " << seed;
    }
  }
}

TEST(MeasuredPlan, CutsThousandsOfParametersAtOnce) {
  Instance instance(3000, true, 1);
  instance.times.cost.latency = 100;
  const auto ends = cut_for_earliest_end(instance.parameters, instance.order, instance.times, 100);
  EXPECT_GT(ends.size(), 1u);
}

TEST(MeasuredPlan, SendsAllAtOnceWhereALatencyIsDear) {
  Instance instance(20, false, 2);
  instance.times.cost.latency = 1e6;
  EXPECT_EQ(cut_for_earliest_end(instance.parameters, instance.order, instance.times).size(), 1u);
}

TEST(MeasuredPlan, OrdersByTimesAndKeepsTheOrderOfEqualOnes) {
  const std::vector<std::size_t> order{3, 1, 0, 2};
  EXPECT_EQ(order_by_times(order, {.ready = {5, 2, 2, 2}, .cost = {}}),
            (std::vector<std::size_t>{3, 1, 2, 0}));
}

TEST(MeasuredPlan, PredictsWhatIsHidden) {
  const std::vector<ParameterInfo> parameters(2, {.numel = 16});
  const BackwardTimes times{
      .ready = {1, 2}, .end = 4, .cost = {.latency = 1, .seconds_per_byte = 1.0 / 64}};
  const auto spans = predict(
      cut_buckets(parameters, std::vector<std::size_t>{0, 1}, std::vector<std::size_t>{1, 2}),
      times);
  EXPECT_EQ(spans[0].start, 1);
  EXPECT_EQ(spans[0].end, 3);
  EXPECT_EQ(spans[1].ready, 2);
  EXPECT_EQ(spans[1].start, 3);
  EXPECT_EQ(spans[1].end, 5);
  EXPECT_EQ(hidden_share(spans, times.end), 0.75);
}

TEST(MeasuredPlan, KnowsWhatNoPlanCouldHide) {
  const std::vector<ParameterInfo> parameters(3, {.numel = 16});
  const BackwardTimes times{
      .ready = {1, 3, 4}, .end = 4, .cost = {.latency = 9, .seconds_per_byte = 1.0 / 64}};
  const std::vector<std::size_t> order{0, 1, 2};
  const auto spans = predict_at_best(parameters, order, times);
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].end, 2);
  EXPECT_EQ(spans[1].start, 3);
  EXPECT_EQ(spans[2].start, 4);  // the last gradient is ready when all is computed
  EXPECT_EQ(hidden_share(spans, times.end), 2.0 / 3);
}

TEST(MeasuredPlan, FitsLatencyAndBandwidth) {
  const std::vector<MessageTime> exact{{0, 3}, {100, 5}, {1000, 23}, {5000, 103}};
  const MessageCost cost = fit_message_cost(exact);
  EXPECT_NEAR(cost.latency, 3, 1e-9);
  EXPECT_NEAR(cost.seconds_per_byte, 0.02, 1e-12);
  const std::vector<MessageTime> one_size{{100, 2}, {100, 2}}, none{}, falling{{0, 3}, {100, 1}},
      steep{{10, 1}, {20, 4}};
  EXPECT_EQ(fit_message_cost(one_size).seconds_per_byte, 0.02);
  EXPECT_EQ(fit_message_cost(none).seconds(100), 0);
  EXPECT_EQ(fit_message_cost(falling).seconds_per_byte, 0);
  EXPECT_GT(fit_message_cost(falling).latency, 0);
  EXPECT_EQ(fit_message_cost(steep).latency, 0);
}

TEST(BucketPlan, RefusesPlacesThatDoNotGrowOrEndEarly) {
  const std::vector<ParameterInfo> parameters(3, {.numel = 1});
  const std::vector<std::size_t> order{2, 1, 0};
  for (const std::vector<std::size_t>& ends : {std::vector<std::size_t>{1, 1, 3}, {1, 2}, {4}, {}})
    EXPECT_THROW(cut_buckets(parameters, order, ends), InvalidArgument);
  EXPECT_EQ(cut_buckets(parameters, order, std::vector<std::size_t>{1, 3})[1].parameters,
            (std::vector<std::size_t>{1, 0}));
}

}  // namespace
}  // namespace lockstep::parallel
