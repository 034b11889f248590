#include "arguments/row_scale.hpp"

#include <algorithm>
#include <cmath>

#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

class RowScaleContract : public ContractTest {
 protected:
  void check(std::int64_t rows, std::int64_t columns) {
    const auto x = array({rows, columns}).randomize(1), y = array({rows, columns});
    backend().row_scale.forward({.y = y, .x = x}, stream());
    Values expected = x.get();
    const auto width = static_cast<std::ptrdiff_t>(columns);
    for (auto row = expected.begin(); row != expected.end(); row += width) {
      double largest = 0;
      for (auto each = row; each != row + width; ++each)
        largest = std::max(largest, std::abs(*each));
      for (auto each = row; each != row + width; ++each) *each /= largest;
    }
    EXPECT_TRUE(close(y.get(), expected, tolerance(2))) << rows << " x " << columns;
  }
};

TEST_P(RowScaleContract, DividesEachRowByItsLargestMagnitude) {
  check(5, 7);
  check(3, 2000);
  check(0, 3);
}

TEST_P(RowScaleContract, DividesByTheFloorAtLeast) {
  const auto x = array({2, 2}).set({0, 0, 1, -4}), y = array({2, 2});
  backend().row_scale.forward({.y = y, .x = x, .floor = 2}, stream());
  EXPECT_EQ(y.get(), (Values{0, 0, 0.25, -1}));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RowScaleContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
