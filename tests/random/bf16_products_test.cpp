#include <cmath>
#include <cstdlib>
#include <iostream>

#include "backend/backend.hpp"
#include "lockstep/autograd/ops/matmul.hpp"
#include "support/random_cases.hpp"

// Extents around whole AMX tiles, where code of processors with them went wrong. They are small
// whole numbers, whose products bf16 holds exactly, so that f32 loops know every result.

namespace lockstep::testing {
namespace {

/// Values from -2 to 2 in the given memory order.
Tensor whole_numbers(const Shape& shape, bool transposed, RandomCase& c) {
  Shape stored = shape;
  const int r = shape.size() - 2, k = shape.size() - 1;
  if (transposed) std::swap(stored[r], stored[k]);
  Tensor values = empty(stored);
  for (float& value : values.flat<float>()) value = static_cast<float>(c.integer(-2, 2));
  const Tensor result = values.to(DType::bf16);
  return transposed ? result.transpose(r, k) : result;
}

/// Compares one product with loops. @returns false, with a message, where they differ.
bool product_is_right(std::int64_t batch, std::int64_t m, std::int64_t k, std::int64_t n,
                      RandomCase& c) {
  const bool turned = c.chance(0.5);
  const Tensor a = whole_numbers({batch, m, k}, c.chance(0.5), c);
  const Tensor b = whole_numbers({batch, k, n}, turned, c);
  const auto x = a.to(DType::f32).contiguous().to_vector<float>();
  const auto y = b.to(DType::f32).contiguous().to_vector<float>();
  const bool single = batch == 1;
  const Tensor product = matmul(single ? a.select(0, 0) : a, single ? b.select(0, 0) : b);
  const auto actual = product.to(DType::f32).to_vector<float>();
  for (std::int64_t i = 0; i < batch * m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (std::int64_t p = 0; p < k; ++p)
        sum += x[static_cast<std::size_t>(i * k + p)] *
               y[static_cast<std::size_t>((i / m * k + p) * n + j)];
      const float found = actual[static_cast<std::size_t>(i * n + j)];
      if (std::abs(found - sum) <= std::abs(sum) / 256) continue;
      std::cerr << batch << " products " << m << " x " << k << " x " << n << ", right one "
                << (turned ? "transposed" : "plain") << ": " << found << ", not " << sum << "\n";
      return false;
    }
  return true;
}

[[noreturn]] void run_products(std::int64_t count) {
  RandomCase c(1, {{backend::of(cpu).name}, DType::bf16});
  const auto extent = [&](std::int64_t high) {
    return c.chance(0.4)
               ? c.integer(1, high)
               : std::max<std::int64_t>(32 * c.integer(1, high / 32) + c.integer(-3, 2), 1);
  };
  std::int64_t wrong = 0;
  for (const std::int64_t m : {65, 66, 200}) wrong += !product_is_right(1, m, 63, 30, c);
  for (std::int64_t i = 0; i < count && wrong < 5; ++i) {
    const std::int64_t batch = c.chance(0.5) ? 1 : c.integer(2, 4), k = extent(128);
    wrong += !product_is_right(batch, extent(128), c.chance(0.1) ? 63 : k, extent(96), c);
  }
  std::_Exit(wrong ? 1 : 0);
}

/// In a child process, which an illegal instruction may end.
void expect_right_products(std::int64_t count) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_products(count), ::testing::ExitedWithCode(0), "");
}

TEST(Bf16ProductsDeathTest, AreRightAroundWholeTiles) { expect_right_products(300); }
TEST(Bf16ProductsDeathTest, SlowAreRightAroundWholeTiles) { expect_right_products(30000); }

}  // namespace
}  // namespace lockstep::testing
