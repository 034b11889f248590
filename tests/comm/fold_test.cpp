#include "comm/host/fold.hpp"

#include <bit>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/core/bfloat16.hpp"

namespace lockstep::comm::host {
namespace {

/// Values whose sum depends on the order in which they are added.
float value(std::size_t rank, std::size_t i) {
  return std::sin(1.7f * static_cast<float>(rank) + 0.31f * static_cast<float>(i)) *
         std::exp2(static_cast<float>((rank * 5 + i) % 17));
}

float tree_sum(std::size_t first, std::size_t count, std::size_t i) {
  if (count == 1) return value(first, i);
  const std::size_t left = std::bit_floor(count - 1);
  return tree_sum(first, left, i) + tree_sum(first + left, count - left, i);
}

template <class T>
std::vector<std::vector<T>> contributions(std::size_t ranks, std::size_t count) {
  std::vector<std::vector<T>> all(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < count; ++i) all[rank].push_back(T(value(rank, i)));
  return all;
}

template <class T>
std::vector<T> folded(const std::vector<std::vector<T>>& from, ReduceKind kind,
                      const std::vector<double>& factors = {}) {
  std::vector<const std::byte*> sources;
  for (const auto& each : from) sources.push_back(reinterpret_cast<const std::byte*>(each.data()));
  std::vector<T> out(from[0].size());
  fold(dtype_of<T>, kind, {sources, factors}, reinterpret_cast<std::byte*>(out.data()),
       static_cast<std::int64_t>(out.size()));
  return out;
}

TEST(Fold, AddsByAFixedTreeOfAnyNumberOfRanks) {
  constexpr std::size_t count = 2500;  // two blocks and a part
  for (const std::size_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 11, 64}) {
    const auto sums = folded(contributions<float>(ranks, count), ReduceKind::sum);
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(sums[i], tree_sum(0, ranks, i)) << ranks << " ranks, element " << i;
  }
}

TEST(Fold, OfGroupsOfEqualPowersOfTwoIsThatOfAll) {
  auto all = contributions<float>(8, 1000);
  const auto expected = folded(all, ReduceKind::sum);
  std::vector<std::vector<float>> parts;
  for (std::size_t part = 0; part < 4; ++part)
    parts.push_back(folded<float>({all[2 * part], all[2 * part + 1]}, ReduceKind::sum));
  EXPECT_EQ(folded(parts, ReduceKind::sum), expected);
}

TEST(Fold, RoundsSixteenBitSumsOnce) {
  const auto all = contributions<BFloat16>(7, 1100);
  const auto sums = folded(all, ReduceKind::average);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    double exact = 0;
    for (const auto& each : all) exact += static_cast<float>(each[i]);
    ASSERT_NEAR(static_cast<float>(sums[i]), exact / 7, std::abs(exact / 7) / 255 + 0.1) << i;
  }
}

TEST(Fold, ScalesContributionsAndMayWriteOverOne) {
  auto all = contributions<double>(3, 1500);
  const std::vector<double> factors{2.0, -0.5, 0.25};
  std::vector<double> expected;
  for (std::size_t i = 0; i < all[0].size(); ++i)
    expected.push_back((all[0][i] * 2.0 + all[1][i] * -0.5) + all[2][i] * 0.25);
  EXPECT_EQ(folded(all, ReduceKind::scaled_sum, factors), expected);
  std::vector<const std::byte*> sources;
  for (const auto& each : all) sources.push_back(reinterpret_cast<const std::byte*>(each.data()));
  fold(DType::f64, ReduceKind::scaled_sum, {sources, factors},
       reinterpret_cast<std::byte*>(all[1].data()), static_cast<std::int64_t>(expected.size()));
  EXPECT_EQ(all[1], expected);
}

}  // namespace
}  // namespace lockstep::comm::host
