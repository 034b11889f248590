#include "arguments/gemm.hpp"

#include <cmath>
#include <limits>

#include "contract/backends.hpp"
#include "core/alike_on_all_ranks.hpp"
#include "lockstep/core/float32_precision.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::test {
namespace {

using kernels::Epilogue;
using kernels::GemmArguments;

struct GemmSizes {
  std::int64_t batch, rows, columns, depth;
};

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) { return (gelu(x + 1e-6) - gelu(x - 1e-6)) / 2e-6; }

/// Strides of [batch, rows, columns], transposed in memory or not, with or without padding.
Strides layout(const Shape& shape, bool transposed, std::int64_t padding = 0) {
  const auto lead = transposed ? shape[1] : shape[2];
  const auto count = transposed ? shape[2] : shape[1];
  const auto pitch = lead + padding;
  return transposed ? Strides{count * pitch, 1, pitch} : Strides{count * pitch, pitch, 1};
}

class GemmContract : public ContractTest {
 protected:
  void run(const GemmArguments& call) { backend().gemm.multiply(call, stream()); }

  static Values naive(const GemmSizes& s, const Values& a, const Values& b) {
    Values out(static_cast<std::size_t>(s.batch * s.rows * s.columns));
    for (std::int64_t n = 0; n < s.batch; ++n)
      for (std::int64_t i = 0; i < s.rows; ++i)
        for (std::int64_t p = 0; p < s.depth; ++p)
          for (std::int64_t j = 0; j < s.columns; ++j)
            out[static_cast<std::size_t>((n * s.rows + i) * s.columns + j)] +=
                a[static_cast<std::size_t>((n * s.rows + i) * s.depth + p)] *
                b[static_cast<std::size_t>((n * s.depth + p) * s.columns + j)];
    return out;
  }

  /// Every layout of one product, with and without accumulation.
  void check_layouts(const GemmSizes& s) {
    for (int bits = 0; bits < 16; ++bits) {
      const bool padded = bits & 8;
      const auto operand = [&](std::int64_t r, std::int64_t c, bool transposed, unsigned seed) {
        const Shape shape{s.batch, r, c};
        return array(shape, layout(shape, transposed, padded ? 3 : 0)).randomize(seed);
      };
      const auto a = operand(s.rows, s.depth, bits & 1, 1);
      const auto b = operand(s.depth, s.columns, bits & 2, 2);
      const auto out = operand(s.rows, s.columns, bits & 4, 3);
      const Values expected = naive(s, a.get(), b.get()), before = out.get();
      run({.out = out, .a = a, .b = b, .beta = 1});
      Values sum = expected;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
      EXPECT_TRUE(close(out.get(), sum, tolerance(8))) << "beta 1, layout " << bits;
      run({.out = out, .a = a, .b = b});
      EXPECT_TRUE(close(out.get(), expected, tolerance(8))) << "beta 0, layout " << bits;
    }
  }
};

TEST_P(GemmContract, MultipliesInEveryLayout) { check_layouts({1, 37, 29, 41}); }
// Sizes around whole vectors and register tiles, each a way of its own through small products.
TEST_P(GemmContract, MultipliesSmallSizesInEveryLayout) {
  for (const GemmSizes& s : {GemmSizes{1, 32, 64, 64},
                             {1, 10, 64, 32},
                             {1, 32, 10, 64},
                             {1, 24, 24, 24},  // squares, which fit the other way round, too
                             {1, 17, 36, 50},
                             {1, 4, 32, 4},
                             {1, 3, 5, 7},
                             {1, 16, 9, 3},
                             {2, 23, 33, 20}})
    check_layouts(s);
}
TEST_P(GemmContract, MultipliesBatchesInEveryLayout) { check_layouts({3, 5, 18, 7}); }
TEST_P(GemmContract, MultipliesAcrossBlockBoundaries) { check_layouts({1, 150, 270, 300}); }
TEST_P(GemmContract, MultipliesVectors) {
  check_layouts({1, 1, 64, 33});
  check_layouts({2, 64, 1, 33});
  check_layouts({1, 4, 4, 1});
}

// So few rows, or columns, that the other operand is read once. Beyond blocks, and in a batch.
TEST_P(GemmContract, MultipliesFewRowsInEveryLayout) {
  for (std::int64_t rows = 1; rows <= 9; ++rows)
    check_layouts(rows % 2 == 1 ? GemmSizes{1, rows, 431, 43} : GemmSizes{1, 431, rows, 43});
  check_layouts({1, 519, 1, 33});
  check_layouts({1, 8, 1100, 33});
  check_layouts({1, 2, 17, 1101});
  check_layouts({3, 2, 530, 34});
}

TEST_P(GemmContract, AddsABiasToFewRows) {
  for (const bool transposed : {false, true}) {
    const GemmSizes s{1, 3, 1101, 35};
    const auto a = array({1, s.rows, s.depth}).randomize(1);
    const Shape shape{1, s.depth, s.columns};
    const auto b = array(shape, layout(shape, transposed)).randomize(2);
    const auto bias = array({s.columns}).randomize(3), out = array({1, s.rows, s.columns});
    run({.out = out, .a = a, .b = b, .epilogue = Epilogue::bias, .bias = bias});
    Values expected = naive(s, a.get(), b.get());
    const Values offsets = bias.get();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += offsets[i % offsets.size()];
    EXPECT_TRUE(close(out.get(), expected, tolerance(8))) << transposed;
  }
}

// Not every kernel of cuBLASLt takes more than 65,535.
TEST_P(GemmContract, MultipliesBatchesOfManyProducts) {
  const GemmSizes s{70'000, 1, 8, 2};
  const auto a = array({s.batch, s.rows, s.depth}).randomize(1);
  const auto b = array({1, s.depth, s.columns}).randomize(2);
  const auto bias = array({s.columns}).randomize(3);
  const auto out = array({s.batch, s.rows, s.columns}), aux = array({s.batch, s.rows, s.columns});
  ArrayView repeated = b;
  repeated.shape[0] = s.batch;
  repeated.strides[0] = 0;
  Values expected = naive({1, s.batch, s.columns, s.depth}, a.get(), b.get());
  run({.out = out, .a = a, .b = repeated});
  EXPECT_TRUE(close(out.get(), expected, tolerance(8)));
  const Values offsets = bias.get();
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += offsets[i % offsets.size()];
  run({.out = out,
       .a = a,
       .b = repeated,
       .epilogue = Epilogue::gelu_bias,
       .bias = bias,
       .aux = aux});
  EXPECT_TRUE(close(aux.get(), expected, tolerance(8)));
  for (double& x : expected) x = gelu(x);
  EXPECT_TRUE(close(out.get(), expected, tolerance(16)));
}

TEST_P(GemmContract, KeepsCloseFactorsOfTheOutputApart) {
  const GemmSizes s{1, 70, 70, 70};  // past what is multiplied without a prepared primitive
  const auto a = array({1, 70, 70}).randomize(1), b = array({1, 70, 70}).randomize(2);
  const Values product = naive(s, a.get(), b.get());
  for (const double beta : {1.0, 1.0005, 0.5, 0.5004}) {
    const auto out = array({1, 70, 70}).randomize(3, 900, 1000);
    Values expected = out.get();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = product[i] + beta * expected[i];
    run({.out = out, .a = a, .b = b, .beta = beta});
    EXPECT_TRUE(close(out.get(), expected, tolerance(8))) << "beta " << beta;
  }
}

TEST_P(GemmContract, RepeatsBroadcastOperands) {
  const GemmSizes s{4, 6, 10, 8};
  auto whole = array({s.batch, s.rows, s.depth}).randomize(1);
  auto one = array({1, s.depth, s.columns}).randomize(2);
  auto out = array({s.batch, s.rows, s.columns});
  ArrayView b = one;
  b.shape[0] = s.batch;
  b.strides[0] = 0;
  Values repeated;
  for (int i = 0; i < s.batch; ++i)
    for (const double value : one.get()) repeated.push_back(value);
  run({.out = out, .a = whole, .b = b});
  EXPECT_TRUE(close(out.get(), naive(s, whole.get(), repeated), tolerance(8)));
}

TEST_P(GemmContract, OverwritesNaNWhenBetaIsZero) {
  auto a = array({1, 4, 4}).randomize(1), b = array({1, 4, 4}).randomize(2);
  auto out = array({1, 4, 4}).set(Values(16, std::numeric_limits<double>::quiet_NaN()));
  run({.out = out, .a = a, .b = b});
  for (const double value : out.get()) EXPECT_FALSE(std::isnan(value));
}

TEST_P(GemmContract, AnEmptyDepthGivesZerosAndAnEmptyOutputIsLeftAlone) {
  auto a = array({1, 3, 0}), b = array({1, 0, 5});
  auto out = array({1, 3, 5}).randomize(3);
  run({.out = out, .a = a, .b = b});
  EXPECT_EQ(out.get(), Values(15, 0.0));
  auto none = array({0, 3, 5});
  EXPECT_NO_THROW(run({.out = none, .a = array({0, 3, 2}), .b = array({0, 2, 5})}));
}

TEST_P(GemmContract, AddsBiasAndAppliesGelu) {
  for (const GemmSizes s : {GemmSizes{1, 33, 50, 20}, GemmSizes{2, 5, 64, 16},
                            GemmSizes{1, 20, 64, 32}, GemmSizes{1, 130, 300, 64}}) {
    auto a = array({s.batch, s.rows, s.depth}).randomize(1);
    auto b = array({s.batch, s.depth, s.columns}).randomize(2);
    auto bias = array({s.columns}).randomize(3);
    const Shape shape{s.batch, s.rows, s.columns};
    auto out = array(shape).randomize(4), aux = array(shape);
    Values before = naive(s, a.get(), b.get()), activated;
    const Values shift = bias.get();
    for (std::size_t i = 0; i < before.size(); ++i) before[i] += shift[i % shift.size()];
    for (const double value : before) activated.push_back(gelu(value));

    run({.out = out, .a = a, .b = b, .epilogue = Epilogue::bias, .bias = bias});
    EXPECT_TRUE(close(out.get(), before, tolerance(8)));
    run({.out = out, .a = a, .b = b, .epilogue = Epilogue::gelu_bias, .bias = bias, .aux = aux});
    EXPECT_TRUE(close(aux.get(), before, tolerance(8)));
    EXPECT_TRUE(close(out.get(), activated, tolerance(16)));
    out.randomize(5);
    run({.out = out, .a = a, .b = b, .epilogue = Epilogue::gelu_bias, .bias = bias});
    EXPECT_TRUE(close(out.get(), activated, tolerance(16))) << "without aux";
  }
}

TEST_P(GemmContract, AccumulatesAfterTheEpilogue) {
  auto a = array({1, 9, 12}).randomize(1), b = array({1, 12, 11}).randomize(2);
  auto bias = array({11}).randomize(3), out = array({1, 9, 11}).randomize(4);
  Values expected = naive({1, 9, 11, 12}, a.get(), b.get());
  const Values shift = bias.get(), before = out.get();
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += shift[i % 11] + before[i];
  run({.out = out, .a = a, .b = b, .beta = 1, .epilogue = Epilogue::bias, .bias = bias});
  EXPECT_TRUE(close(out.get(), expected, tolerance(8)));
}

TEST_P(GemmContract, AddsAnotherArray) {
  for (const GemmSizes s :
       {GemmSizes{1, 9, 11, 12}, GemmSizes{2, 16, 64, 24}, GemmSizes{1, 130, 70, 64}})
    for (const bool turned : {false, true}) {
      const Shape shape{s.batch, s.rows, s.columns};
      auto a = array({s.batch, s.rows, s.depth}).randomize(1);
      auto b = array({s.batch, s.depth, s.columns}).randomize(2);
      auto bias = array({s.columns}).randomize(3);
      auto addend = array(shape, layout(shape, turned, 2)).randomize(4), out = array(shape);
      Values expected = naive(s, a.get(), b.get());
      const Values shift = bias.get(), before = addend.get();
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
      run({.out = out, .a = a, .b = b, .beta = 1, .addend = addend});
      EXPECT_TRUE(close(out.get(), expected, tolerance(8)));
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += shift[i % shift.size()];
      run({.out = out,
           .a = a,
           .b = b,
           .beta = 1,
           .addend = addend,
           .epilogue = Epilogue::bias,
           .bias = bias});
      EXPECT_TRUE(close(out.get(), expected, tolerance(8)));
      EXPECT_EQ(addend.get(), before);
    }
  auto out = array({1, 3, 5}), addend = array({1, 3, 5}).randomize(1);
  run({.out = out, .a = array({1, 3, 0}), .b = array({1, 0, 5}), .beta = 1, .addend = addend});
  EXPECT_EQ(out.get(), addend.get());
}

// Where the batch joins the rows of one product the addend may not.
TEST_P(GemmContract, AddsTheSameArrayToEachOfABatch) {
  const GemmSizes s{6, 4, 40, 64};
  auto a = array({s.batch, s.rows, s.depth}).randomize(1), one = array({1, s.depth, s.columns});
  one.randomize(2);
  auto addend = array({1, s.rows, s.columns}).randomize(3);
  auto out = array({s.batch, s.rows, s.columns});
  ArrayView b = one, added = addend;
  for (ArrayView* view : {&b, &added}) {
    view->shape[0] = s.batch;
    view->strides[0] = 0;
  }
  Values repeated;
  for (int i = 0; i < s.batch; ++i)
    for (const double value : one.get()) repeated.push_back(value);
  Values expected = naive(s, a.get(), repeated);
  const Values each = addend.get();
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += each[i % each.size()];
  run({.out = out, .a = a, .b = b, .beta = 1, .addend = added});
  EXPECT_TRUE(close(out.get(), expected, tolerance(8)));
  EXPECT_EQ(addend.get(), each);
}

// Fused kernels load the bias as vectors of 16 bytes (PyTorch pull request 194497).
TEST_P(GemmContract, TheBiasMayStartAnywhereInMemory) {
  const GemmSizes s{1, 9, 16, 12};
  auto a = array({1, s.rows, s.depth}).randomize(1),
       b = array({1, s.depth, s.columns}).randomize(2);
  auto storage = array({s.columns + 1}).randomize(3);
  auto out = array({1, s.rows, s.columns}), aux = array({1, s.rows, s.columns});
  ArrayView bias = storage;
  bias.shape = {s.columns};
  bias.data = bias.as<std::byte>() + size_of(bias.dtype);
  Values before = naive(s, a.get(), b.get());
  const Values shift = storage.get();
  for (std::size_t i = 0; i < before.size(); ++i) before[i] += shift[i % 16 + 1];
  run({.out = out, .a = a, .b = b, .epilogue = Epilogue::bias, .bias = bias});
  EXPECT_TRUE(close(out.get(), before, tolerance(8)));
  run({.out = out, .a = a, .b = b, .epilogue = Epilogue::gelu_bias, .bias = bias, .aux = aux});
  EXPECT_TRUE(close(aux.get(), before, tolerance(8)));
}

TEST_P(GemmContract, MultipliesByTheSlopeOfGelu) {
  for (const GemmSizes s : {GemmSizes{1, 33, 50, 20}, GemmSizes{1, 130, 300, 64}}) {
    auto a = array({s.batch, s.rows, s.depth}).randomize(1);
    auto b = array({s.batch, s.depth, s.columns}, layout({s.batch, s.depth, s.columns}, true));
    b.randomize(2);
    auto aux = array({s.batch, s.rows, s.columns}).randomize(3, -4, 4);
    auto out = array({s.batch, s.rows, s.columns});
    Values expected = naive(s, a.get(), b.get());
    const Values at = aux.get();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] *= gelu_slope(at[i]);
    run({.out = out, .a = a, .b = b, .epilogue = Epilogue::dgelu, .aux = aux});
    EXPECT_TRUE(close(out.get(), expected, tolerance(16) + 1e-9));
  }
}

// The product of a weight's gradient, dy^T x, reads all that the bias's is the sum of.
TEST_P(GemmContract, SumsTheGradientOfABiasBesideTheProduct) {
  const DType wide = statistics_dtype();
  for (const GemmSizes s :
       {GemmSizes{1, 40, 24, 33}, GemmSizes{1, 7, 5, 19}, GemmSizes{1, 96, 64, 130}})
    for (const DType to : {GetParam().dtype, wide})
      for (const bool padded : {false, true}) {
        const Shape turned{1, s.rows, s.depth};
        auto dy = array(turned, layout(turned, true, padded ? 3 : 0)).randomize(1);
        auto x = array({1, s.depth, s.columns}).randomize(2);
        auto weight = array(to, {1, s.rows, s.columns}).randomize(3);
        auto bias = array(to, {s.rows}).randomize(4);
        const Values product = naive(s, dy.get(), x.get()), rows = dy.get();
        Values sums(static_cast<std::size_t>(s.rows));
        for (std::size_t i = 0; i < rows.size(); ++i)
          sums[i / static_cast<std::size_t>(s.depth)] += rows[i];
        const double close_enough = to == GetParam().dtype ? tolerance(16) : 1e-4;
        GemmArguments call{
            .out = weight, .a = dy, .b = x, .epilogue = Epilogue::bias_gradient, .bias = bias};
        run(call);
        EXPECT_TRUE(close(weight.get(), product, close_enough));
        EXPECT_TRUE(close(bias.get(), sums, close_enough));
        bias.randomize(5);
        Values added = bias.get();
        for (std::size_t i = 0; i < added.size(); ++i) added[i] += sums[i];
        call.accumulate_bias = true;
        run(call);
        EXPECT_TRUE(close(weight.get(), product, close_enough)) << "only the bias is added to";
        EXPECT_TRUE(close(bias.get(), added, close_enough));
      }
}

TEST_P(GemmContract, TheGradientOfABiasNeedsNoInputs) {
  auto dy = array({1, 5, 6}, {30, 1, 5}).randomize(1), bias = array({5}).randomize(2);
  const Values rows = dy.get();
  run({.out = array({1, 5, 0}),
       .a = dy,
       .b = array({1, 6, 0}),
       .epilogue = Epilogue::bias_gradient,
       .bias = bias});
  Values sums(5);
  for (std::size_t i = 0; i < rows.size(); ++i) sums[i / 6] += rows[i];
  EXPECT_TRUE(close(bias.get(), sums, tolerance(8)));
}

// An f32 gradient of bf16 or f16 operands keeps the digits that their dtype would round away.
TEST_P(GemmContract, WritesWhatItAccumulatesIn) {
  for (const GemmSizes s :
       {GemmSizes{1, 37, 29, 41}, GemmSizes{3, 6, 32, 65}, GemmSizes{1, 150, 270, 300}})
    for (const bool transposed : {false, true}) {
      const Shape shape{s.batch, s.rows, s.columns};
      auto a = array({s.batch, s.rows, s.depth}, layout({s.batch, s.rows, s.depth}, !transposed));
      auto b = array({s.batch, s.depth, s.columns});
      a.randomize(1), b.randomize(2);
      DeviceArray out(statistics_dtype(), shape, layout(shape, transposed), GetParam().device);
      out.randomize(3);
      Values expected = naive(s, a.get(), b.get()), sum = out.get();
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += expected[i];
      const double f32_sums = 1e-6 * static_cast<double>(s.depth);
      run({.out = out, .a = a, .b = b, .beta = 1});
      EXPECT_TRUE(close(out.get(), sum, f32_sums)) << "beta 1, transposed " << transposed;
      run({.out = out, .a = a, .b = b});
      EXPECT_TRUE(close(out.get(), expected, f32_sums)) << "beta 0, transposed " << transposed;
    }
}

TEST_P(GemmContract, WritesEpiloguesInTheDtypeOfTheOutput) {
  const GemmSizes s{1, 24, 40, 33};
  const DType wide = statistics_dtype();
  auto a = array({1, s.rows, s.depth}).randomize(1),
       b = array({1, s.depth, s.columns}).randomize(2);
  auto bias = array(wide, {s.columns}).randomize(3);
  auto out = array(wide, {1, s.rows, s.columns}), aux = array(wide, {1, s.rows, s.columns});
  Values before = naive(s, a.get(), b.get()), activated;
  const Values shift = bias.get();
  for (std::size_t i = 0; i < before.size(); ++i) before[i] += shift[i % shift.size()];
  for (const double value : before) activated.push_back(gelu(value));
  run({.out = out, .a = a, .b = b, .epilogue = Epilogue::bias, .bias = bias});
  EXPECT_TRUE(close(out.get(), before, 1e-4));
  run({.out = out, .a = a, .b = b, .epilogue = Epilogue::gelu_bias, .bias = bias, .aux = aux});
  EXPECT_TRUE(close(aux.get(), before, 1e-4));
  EXPECT_TRUE(close(out.get(), activated, 1e-4));
}

/// 1 + 2^-12 in f32, which is 1 in TF32.
TEST_P(GemmContract, RoundsF32OnlyWhereThatIsAllowedAndOnAGpu) {
  if (GetParam().dtype != DType::f32) return;
  constexpr std::int64_t n = 64, depth = 128;
  const double fine = 1 + 0x1p-12;
  auto a = array({1, n, depth}).set(Values(n * depth, fine));
  auto b = array({1, depth, n}).set(Values(depth * n, 1.0));
  const auto first = [&] {
    auto out = array({1, n, n});
    run({.out = out, .a = a, .b = b});
    return out.get().front();
  };
  EXPECT_NEAR(first(), depth * fine, 1e-4);
  set_float32_precision(Float32Precision::tf32);
  const double rounded = first();
  set_float32_precision(Float32Precision::ieee);
  EXPECT_NEAR(rounded, depth * fine, GetParam().device.is_cuda() ? depth * 0x1p-11 : 1e-4);
  EXPECT_NEAR(first(), depth * fine, 1e-4);
}

TEST_P(GemmContract, RepeatsItsResultsExactly) {
  auto a = array({1, 200, 520}).randomize(1), b = array({1, 520, 70}).randomize(2);
  auto first = array({1, 200, 70}), second = array({1, 200, 70});
  run({.out = first, .a = a, .b = b});
  run({.out = second, .a = a, .b = b});
  EXPECT_EQ(first.get(), second.get());
}

TEST_P(GemmContract, IsAlikeOnRanksWithOtherNumbersOfThreadsWhereThatIsAskedFor) {
  if (GetParam().device.is_cuda()) GTEST_SKIP() << "threads of the CPU";
  for (const auto& [batch, rows, columns, depth] :
       {GemmSizes{1, 3, 1, 3072}, {2, 3072, 4, 768}, {1, 4, 700, 3000}, {1, 300, 200, 520}}) {
    const bool is_transposed = rows == 3;
    const auto a =
        array({batch, rows, depth}, layout({batch, rows, depth}, is_transposed)).randomize(1);
    const auto b = array({batch, depth, columns}).randomize(2);
    const auto result = [&](int threads) {
      const AlikeOnAllRanks alike;
      const int before = num_threads();
      set_num_threads(threads);
      const auto out = array({batch, rows, columns});
      run({.out = out, .a = a, .b = b});
      set_num_threads(before);
      return out.get();
    };
    const Values one = result(1);
    EXPECT_EQ(one, result(2));
    EXPECT_EQ(one, result(3));
    const auto out = array({batch, rows, columns});
    run({.out = out, .a = a, .b = b});
    const Values by_all = out.get();
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], by_all[i], 0.5) << i;
  }
}

TEST(CpuGemm, GivesTheSameBitsForAnyThreadCount) {
  DeviceArray a(DType::f32, {2, 200, 520}), b(DType::f32, {2, 520, 170});
  a.randomize(1);
  b.randomize(2);
  DeviceArray serial(DType::f32, {2, 200, 170}), parallel(DType::f32, {2, 200, 170});
  const int threads = num_threads();
  set_num_threads(1);
  backend::cpu().gemm.multiply({.out = serial, .a = a, .b = b}, {});
  set_num_threads(4);
  backend::cpu().gemm.multiply({.out = parallel, .a = a, .b = b}, {});
  set_num_threads(threads);
  EXPECT_EQ(serial.get(), parallel.get());
}

TEST(CpuGemm, RefusesOperandsThatDoNotFit) {
  DeviceArray a(DType::f32, {1, 2, 3}), b(DType::f32, {1, 4, 5}), out(DType::f32, {1, 2, 5});
  EXPECT_THROW(backend::cpu().gemm.multiply({.out = out, .a = a, .b = b}, {}), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, GemmContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
