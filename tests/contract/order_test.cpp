#include "arguments/order.hpp"

#include <algorithm>
#include <numeric>

#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

class OrderContract : public ContractTest {
 protected:
  Values sorted(const DeviceArray& in, int dim, bool descending) {
    const DeviceArray out = array(DType::i64, in.view().shape);
    backend().order.argsort({.out = out, .in = in, .dim = dim, .descending = descending}, stream());
    return out.get();
  }
};

TEST_P(OrderContract, SortsRowsAndColumnsKeepingEqualOnesInOrder) {
  const auto in = array({2, 4}).set({1, 0, 1, 0, 0, 1, 1, 1});
  EXPECT_EQ(sorted(in, 1, false), (Values{1, 3, 0, 2, 0, 1, 2, 3}));
  EXPECT_EQ(sorted(in, 1, true), (Values{0, 2, 1, 3, 1, 2, 3, 0}));
  EXPECT_EQ(sorted(in, 0, false), (Values{1, 0, 0, 0, 0, 1, 1, 1}));
}

TEST_P(OrderContract, SortsLongLinesOfAnyLayout) {
  const bool truth = dtype() == DType::boolean, small = truth || dtype() == DType::u8;
  const double low = small ? 0 : -100, high = truth ? 2 : 100;
  for (const Strides& strides : {Strides{701, 1}, Strides{1, 5}, Strides{1500, 2}}) {
    auto in = array({5, 701}, strides).randomize(3, low, high);
    Values whole = in.get();
    for (double& value : whole) value = std::floor(value);  // so that some are equal
    in.set(whole);
    const Values values = in.get(), places = sorted(in, 1, false);
    Values expected;
    for (std::ptrdiff_t row = 0; row < 5; ++row) {
      std::vector<std::ptrdiff_t> order(701);
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, {}, [&](std::ptrdiff_t i) {
        return values[static_cast<std::size_t>(row * 701 + i)];
      });
      expected.insert(expected.end(), order.begin(), order.end());
    }
    EXPECT_EQ(places, expected) << strides;
  }
}

// More than the CPU sorts in one go, most of them close together.
TEST_P(OrderContract, SortsManyValuesOfUnevenDensity) {
  const bool whole = dtype() == DType::boolean || dtype() == DType::u8;
  const bool wide = dtype() == DType::f64 || dtype() == DType::i64;
  for (const std::int64_t n : {100, 3000, 40'000}) {
    auto in = array({n}).randomize(2, 0, dtype() == DType::boolean ? 2 : 15);
    Values values = in.get();
    for (double& value : values)
      if (!whole) value = std::trunc(std::exp2(value)) * (wide ? 0x1p20 : 1) + (wide ? value : 0);
    if (wide) values[7] = 0x1p62;  // so that the others agree in all the highest bits
    in.set(values);
    values = in.get();
    for (const bool descending : {false, true}) {
      Values expected(values.size());
      std::iota(expected.begin(), expected.end(), 0.0);
      std::ranges::stable_sort(expected, {}, [&](double i) {
        const double value = values[static_cast<std::size_t>(i)];
        return descending ? -value : value;
      });
      EXPECT_EQ(sorted(in, 0, descending), expected) << n << (descending ? " falling" : " rising");
    }
  }
}

TEST_P(OrderContract, TakesEmptyArraysAndSingleElements) {
  EXPECT_EQ(sorted(array({2, 0}), 1, false), Values{});
  EXPECT_EQ(sorted(array({0, 2}), 1, true), Values{});
  EXPECT_EQ(sorted(array({3, 1}).set({1, 0, 1}), 1, true), (Values{0, 0, 0}));
}

INSTANTIATE_TEST_SUITE_P(Backends, OrderContract,
                         ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16,
                                                      DType::f16, DType::i64, DType::i32, DType::u8,
                                                      DType::boolean})),
                         target_name);

class OrderOfBytes : public OrderContract {};

// More than a GPU's blocks count for each other.
TEST_P(OrderOfBytes, SortsManyInOneLine) {
  const std::int64_t n = 140'000;
  const auto in = array({n}).randomize(1, 0, 255);
  const Values values = in.get();
  Values expected(values.size());
  std::iota(expected.begin(), expected.end(), 0.0);
  const auto value_of = [&](double i) { return values[static_cast<std::size_t>(i)]; };
  std::ranges::stable_sort(expected, {}, value_of);
  EXPECT_TRUE(sorted(in, 0, false) == expected);
  std::iota(expected.begin(), expected.end(), 0.0);
  std::ranges::stable_sort(expected, std::ranges::greater(), value_of);
  EXPECT_TRUE(sorted(in, 0, true) == expected);
}

INSTANTIATE_TEST_SUITE_P(Backends, OrderOfBytes,
                         ::testing::ValuesIn(targets({DType::u8, DType::boolean})), target_name);

class OrderOfFloats : public OrderContract {};

TEST_P(OrderOfFloats, PutsNanBehindAllNumbersAndZerosTogether) {
  const double inf = INFINITY, nan = NAN;
  const auto in = array({9}).set({nan, 0.0, -inf, -0.0, inf, -1.5, nan, 2, 0.0});
  EXPECT_EQ(sorted(in, 0, false), (Values{2, 5, 1, 3, 8, 7, 4, 0, 6}));
  EXPECT_EQ(sorted(in, 0, true), (Values{0, 6, 4, 7, 1, 3, 8, 5, 2}));
}

TEST_P(OrderOfFloats, FindsPlacesInSortedLines) {
  const auto line = array({1, 5}).set({-1, 0, 0, 2, NAN});
  const auto values = array({2, 4}).set({-2, 0, 1, NAN, -1, 2, INFINITY, -0.0});
  const auto out = array(DType::i64, {2, 4});
  ArrayView repeated = line;
  repeated.shape = {2, 5};
  repeated.strides = {0, 1};
  const auto run = [&](bool right) {
    backend().order.search({.out = out, .sorted = repeated, .values = values, .right = right},
                           stream());
    return out.get();
  };
  EXPECT_EQ(run(false), (Values{0, 1, 3, 4, 0, 3, 4, 1}));
  EXPECT_EQ(run(true), (Values{0, 3, 3, 5, 1, 4, 4, 3}));
  const auto nothing = array({2, 0});
  backend().order.search({.out = out, .sorted = nothing, .values = values}, stream());
  EXPECT_EQ(out.get(), Values(8, 0.0));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, OrderOfFloats,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

class OrderOfLargeIntegers : public OrderContract {};

TEST_P(OrderOfLargeIntegers, TellsAllBitsApart) {
  const auto in = array({4}).set({5, -1, -2147483648.0, 2147483647.0});
  EXPECT_EQ(sorted(in, 0, false), (Values{2, 1, 0, 3}));
  const auto values = array({4}).set({-5, -2147483648.0, 7, 2147483647.0});
  const auto line = array({4}).set({-2147483648.0, -1, 5, 2147483647.0});
  const auto out = array(DType::i64, {4});
  backend().order.search({.out = out, .sorted = line, .values = values, .right = true}, stream());
  EXPECT_EQ(out.get(), (Values{1, 1, 3, 4}));
}

INSTANTIATE_TEST_SUITE_P(Backends, OrderOfLargeIntegers,
                         ::testing::ValuesIn(targets({DType::i64, DType::i32})), target_name);

}  // namespace
}  // namespace lockstep::test
