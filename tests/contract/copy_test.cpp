#include <algorithm>

#include "arguments/elementwise.hpp"
#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

class CopyContract : public ContractTest {
 protected:
  void check(const Shape& shape, const Strides& to, const Strides& from) {
    const auto in = array(shape, from).randomize(1, 0.0, 100.0);
    const auto out = array(shape, to);
    backend().elementwise.copy({.out = out, .in = in}, stream());
    EXPECT_EQ(out.get(), in.get()) << shape << to << from;
  }
};

TEST_P(CopyContract, MovesEveryLayout) {
  check({1000}, {1}, {1});
  check({}, {}, {});
  check({5, 0}, {1, 1}, {1, 1});
  check({70, 90}, {90, 1}, {1, 70});
  check({70, 90}, {1, 70}, {90, 1});
  check({3, 40, 50}, {2000, 50, 1}, {2000, 1, 40});
  check({2, 8, 9, 10}, {720, 90, 10, 1}, {720, 1, 80, 8});
  check({2, 8, 9, 10}, {720, 1, 80, 8}, {720, 90, 10, 1});
  check({6, 7}, {7, 1}, {0, 1});
  check({6, 7}, {20, 2}, {1, 0});
  check({500, 10}, {10, 1}, {1, 0});
  check({40, 30, 5}, {150, 5, 1}, {30, 1, 0});
  check({40, 30, 5}, {150, 5, 1}, {5, 0, 1});
  check({40, 30, 5}, {150, 5, 1}, {10, 800, 2});
}

TEST_P(CopyContract, FollowsNegativeStrides) {
  const auto in = array({3, 4}).set({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const auto out = array({3, 4});
  ArrayView flipped = in;
  flipped.data = in.view().as<char>() + 11 * size_of(dtype());
  flipped.strides = {-4, -1};
  backend().elementwise.copy({.out = out, .in = flipped}, stream());
  Values expected = in.get();
  std::reverse(expected.begin(), expected.end());
  EXPECT_EQ(out.get(), expected);
}

TEST_P(CopyContract, ConvertsToEveryDtype) {
  for (const DType other : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32,
                            DType::u8, DType::boolean}) {
    const auto in = array({3, 5}).set({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14});
    const auto out = array(other, {3, 5}),
               strided = DeviceArray(other, {3, 5}, {1, 3}, GetParam().device);
    backend().elementwise.copy({.out = out, .in = in}, stream());
    backend().elementwise.copy({.out = strided, .in = in}, stream());
    Values expected = in.get();
    if (other == DType::boolean)
      for (double& value : expected) value = value != 0;
    EXPECT_EQ(out.get(), expected) << other;
    EXPECT_EQ(strided.get(), expected) << other;
  }
}

TEST_P(CopyContract, FillsAndCounts) {
  const auto out = array({4, 3}, {1, 4});
  backend().elementwise.fill({.out = out, .value = 1}, stream());
  EXPECT_EQ(out.get(), Values(12, 1.0));
  if (dtype() == DType::boolean) return;
  const auto line = array({5});
  backend().elementwise.arange({.out = line, .start = 3, .step = 2}, stream());
  EXPECT_EQ(line.get(), (Values{3, 5, 7, 9, 11}));
}

TEST_P(CopyContract, KeepsTriangles) {
  const auto in = array({2, 3, 4}).set(Values(24, 1.0)), out = array({2, 3, 4});
  for (const bool upper : {false, true})
    for (std::int64_t diagonal = -3; diagonal <= 4; ++diagonal) {
      backend().elementwise.triangle({.out = out, .in = in, .upper = upper, .diagonal = diagonal},
                                     stream());
      Values expected;
      for (int i = 0; i < 24; ++i) {
        const int column = i % 4, row = i / 4 % 3;
        expected.push_back(upper ? column - row >= diagonal : column - row <= diagonal);
      }
      EXPECT_EQ(out.get(), expected) << upper << ' ' << diagonal;
    }
}

INSTANTIATE_TEST_SUITE_P(Backends, CopyContract,
                         ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16,
                                                      DType::f16, DType::i64, DType::i32, DType::u8,
                                                      DType::boolean})),
                         target_name);

TEST_P(CopyContract, FillsAnyNumberOfElements) {
  for (const std::int64_t n : {1, 3, 15, 16, 17, 33, 1000}) {
    const auto out = array({n + 2}).set(Values(static_cast<std::size_t>(n + 2), 0.0));
    ArrayView inner = out;
    inner.shape = {n};
    inner.data = out.view().as<char>() + size_of(dtype());
    backend().elementwise.fill({.out = inner, .value = 1}, stream());
    Values expected(static_cast<std::size_t>(n + 2), 1.0);
    expected.front() = expected.back() = 0;
    EXPECT_EQ(out.get(), expected) << n;
  }
}

}  // namespace
}  // namespace lockstep::test
