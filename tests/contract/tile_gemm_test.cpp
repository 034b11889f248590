// Products by tile registers against those by loops, which the contract suites hold to formulas.

#include "cpu/tile_gemm.hpp"

#include <limits>
#include <random>

#include "contract/backends.hpp"
#include "cpu/tile_products.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::test {
namespace {

using kernels::Epilogue;
using kernels::GemmArguments;

class TileGemm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu_kernels::has_tile_registers()) GTEST_SKIP() << "this machine has no tiles of bf16";
  }
};
using TileProducts = TileGemm;

struct TileGemmSizes {
  std::int64_t rows, columns, depth;
};

/// One row or column short of whole blocks, and behind them; parts of a few panels and of many, the
/// smaller operand left or right, and depths of more than a block.
const TileGemmSizes edges[] = {{128, 128, 96}, {127, 129, 97},  {129, 95, 127},  {65, 530, 70},
                               {530, 65, 70},  {64, 1040, 65},  {1050, 67, 63},  {64, 70, 2100},
                               {530, 560, 33}, {63, 2048, 128}, {70, 130, 4097}, {700, 64, 300}};

/// [rows, columns] in memory as they are or transposed, with a gap behind each line.
DeviceArray matrix(DType dtype, std::int64_t rows, std::int64_t columns, bool transposed,
                   unsigned seed) {
  const std::int64_t gap = seed % 2 * 5, line = (transposed ? rows : columns) + gap;
  return DeviceArray(dtype, {1, rows, columns},
                     transposed ? Strides{line * columns, 1, line} : Strides{line * rows, line, 1},
                     cpu)
      .randomize(seed);
}

/// What the loops make of a call.
Values by_loops(const GemmArguments& call, DeviceArray& out, const Values& before) {
  out.set(before);
  backend::cpu().gemm.multiply(call, {});
  return out.get();
}

TEST_F(TileGemm, MultipliesAsLoopsInEveryLayout) {
  unsigned seed = 0;
  for (const TileGemmSizes& s : edges)
    for (int bits = 0; bits < 16; ++bits) {
      SCOPED_TRACE(::testing::Message()
                   << s.rows << " x " << s.columns << " x " << s.depth << ", layout " << bits);
      const auto a = matrix(DType::bf16, s.rows, s.depth, bits & 1, ++seed);
      const auto b = matrix(DType::bf16, s.depth, s.columns, bits & 2, ++seed);
      auto out = matrix(bits & 4 ? DType::f32 : DType::bf16, s.rows, s.columns, false, ++seed);
      const Values before = out.get();
      const GemmArguments call{.out = out, .a = a, .b = b, .beta = bits & 8 ? 0.5 : 0.0};
      if (!cpu_kernels::multiply_in_tiles(call)) {
        EXPECT_LT(std::min(s.rows, s.columns), 64);
        EXPECT_EQ(out.get(), before);
        continue;
      }
      const Values found = out.get();
      const double sums = 1e-6 * static_cast<double>(s.depth);
      EXPECT_TRUE(close(found, by_loops(call, out, before),
                        2 * rounding(bits & 4 ? DType::f32 : DType::bf16) + sums));
    }
}

TEST_F(TileGemm, DoesWhatIsAskedWithTheResult) {
  for (const TileGemmSizes& s : {TileGemmSizes{300, 270, 70}, {70, 600, 64}, {600, 65, 64}})
    for (const Epilogue epilogue : {Epilogue::bias, Epilogue::gelu_bias, Epilogue::dgelu})
      for (const DType dtype : {DType::bf16, DType::f32})
        for (const bool adds : {false, true}) {
          SCOPED_TRACE(::testing::Message() << s.rows << " x " << s.columns << ", epilogue "
                                            << static_cast<int>(epilogue) << ' ' << dtype << adds);
          const auto a = matrix(DType::bf16, s.rows, s.depth, false, 1);
          const auto b = matrix(DType::bf16, s.depth, s.columns, true, 2);
          auto out = matrix(dtype, s.rows, s.columns, false, 3);
          const auto addend = matrix(dtype, s.rows, s.columns, true, 4);
          const auto bias = DeviceArray(dtype, {s.columns}, cpu).randomize(5);
          const auto aux = DeviceArray(dtype, {1, s.rows, s.columns}, cpu).randomize(6);
          GemmArguments call{.out = out, .a = a, .b = b, .epilogue = epilogue, .aux = aux};
          if (epilogue != Epilogue::dgelu) call.bias = bias;
          if (adds) {
            call.beta = 1.5;
            call.addend = addend;
          }
          const Values before = out.get();
          ASSERT_TRUE(cpu_kernels::multiply_in_tiles(call));
          const Values found = out.get(), saved = aux.get();
          const double tolerance = 4 * rounding(dtype) + 1e-4;
          EXPECT_TRUE(close(found, by_loops(call, out, before), tolerance));
          EXPECT_TRUE(close(saved, aux.get(), tolerance));
        }
}

TEST_F(TileGemm, GivesTheSameBitsOnAnyNumberOfThreads) {
  const auto a = matrix(DType::bf16, 500, 3000, false, 1);
  const auto b = matrix(DType::bf16, 3000, 200, false, 2);
  auto out = matrix(DType::f32, 500, 200, false, 3);
  const int before = num_threads();
  std::vector<Values> found;
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    EXPECT_TRUE(cpu_kernels::multiply_in_tiles({.out = out, .a = a, .b = b}));
    found.push_back(out.get());
  }
  set_num_threads(before);
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(found[0], found[2]);
}

// A value that is not finite stays in its row and column: what fills tiles up is 0 times 0.
TEST_F(TileGemm, KeepsWhatIsNotFiniteInItsRowAndColumn) {
  const TileGemmSizes s{130, 130, 70};
  auto a = matrix(DType::bf16, s.rows, s.depth, false, 2);
  auto b = matrix(DType::bf16, s.depth, s.columns, true, 4);
  auto out = matrix(DType::bf16, s.rows, s.columns, false, 6);
  Values left = a.get(), right = b.get();
  left[129 * 70 + 69] = std::numeric_limits<double>::infinity();
  right[69 * 130 + 129] = std::numeric_limits<double>::quiet_NaN();
  a.set(left);
  b.set(right);
  ASSERT_TRUE(cpu_kernels::multiply_in_tiles({.out = out, .a = a, .b = b}));
  const Values found = out.get();
  for (std::int64_t i = 0; i < s.rows; ++i)
    for (std::int64_t j = 0; j < s.columns; ++j)
      EXPECT_EQ(std::isfinite(found[static_cast<std::size_t>(i * 130 + j)]), i != 129 && j != 129)
          << i << ", " << j;
}

#if defined(__x86_64__)
// Attention's products, which have extents of their own units: rows in eights, any depth.
TEST_F(TileProducts, AreThoseOfLoops) {
  using cpu_kernels::Pair;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> values(-1, 1);
  const auto fill = [&](std::int64_t count) {
    std::vector<BFloat16> result(static_cast<std::size_t>(count));
    for (BFloat16& x : result) x = BFloat16(values(random));
    return result;
  };
  for (const std::int64_t rows : {8, 16, 24, 32, 40, 72})
    for (const std::int64_t columns : {32, 96})
      for (const std::int64_t depth : {1, 15, 16, 17, 48, 300})
        for (int bits = 0; bits < 8; ++bits) {
          const bool turned = bits & 1, accumulate = bits & 2;
          const float scale = bits & 4 ? 0.125f : 1.0f;
          const auto a = fill(rows * depth * 2), b = fill(depth * columns * 2);
          std::vector<float> c(static_cast<std::size_t>(rows * columns));
          for (float& x : c) x = values(random);
          const std::vector<float> before = c;
          cpu_kernels::multiply_in_tiles({.c = c.data(),
                                          .c_row = columns,
                                          .a = reinterpret_cast<const Pair*>(a.data()),
                                          .a_row = turned ? 1 : depth,
                                          .a_column = turned ? rows : 1,
                                          .b = reinterpret_cast<const Pair*>(b.data()),
                                          .b_row = columns,
                                          .rows = rows,
                                          .columns = columns,
                                          .depth = depth,
                                          .scale = scale,
                                          .accumulate = accumulate});
          for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t j = 0; j < columns; ++j) {
              float sum = 0;
              for (std::int64_t p = 0; p < 2 * depth; ++p) {
                const std::int64_t pair = turned ? p / 2 * rows + i : i * depth + p / 2;
                sum += static_cast<float>(a[static_cast<std::size_t>(2 * pair + p % 2)]) *
                       static_cast<float>(
                           b[static_cast<std::size_t>(2 * (p / 2 * columns + j) + p % 2)]);
              }
              const auto at = static_cast<std::size_t>(i * columns + j);
              ASSERT_NEAR(c[at], scale * sum + (accumulate ? before[at] : 0), 1e-4)
                  << rows << " x " << columns << " x " << depth << ", case " << bits << ", at " << i
                  << ", " << j;
            }
        }
}
#endif

}  // namespace
}  // namespace lockstep::test
