#include "backend/onednn/f32_products.hpp"

#include <algorithm>

#include "contract/backends.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::test {
namespace {

using kernels::Epilogue;
using kernels::GemmArguments;

struct Sizes {
  std::int64_t batch, rows, columns, depth;
};

/// Products that are cut along each side, against the `cpu` backend's: whether the processor
/// multiplies these dtypes or not.
TEST(F32Products, AreThoseOfTheirBlocks) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const Sizes& s : {Sizes{1, 67, 65, 17'003},  // sums in two parts
                           {1, 5, 8'300, 600},        // two blocks of columns
                           {1, 9'001, 70, 20},        // two of rows
                           {1, 3, 40'000, 1},         // a result that is large
                           {3, 33, 20, 40},
                           {1, 1, 1, 1}})
      for (int bits = 0; bits < 16; ++bits) {
        SCOPED_TRACE(::testing::Message() << dtype << ' ' << s.rows << " x " << s.columns << " x "
                                          << s.depth << ", case " << bits);
        const auto matrix = [&](DType of, std::int64_t rows, std::int64_t columns, bool turned) {
          const Strides strides =
              turned ? Strides{rows * columns, 1, rows} : Strides{rows * columns, columns, 1};
          return DeviceArray(of, {s.batch, rows, columns}, strides, cpu);
        };
        const DType result = bits & 4 ? DType::f32 : dtype;
        const auto a = matrix(dtype, s.rows, s.depth, bits & 1).randomize(1);
        const auto b = matrix(dtype, s.depth, s.columns, bits & 2).randomize(2);
        const auto bias = DeviceArray(result, {s.columns}, cpu).randomize(3);
        const auto out = matrix(result, s.rows, s.columns, false).randomize(4);
        const auto expected = matrix(result, s.rows, s.columns, false).randomize(4);
        GemmArguments call{.a = a, .b = b, .beta = bits & 8 ? 1.0 : 0.0};
        if (bits & 1) {
          call.epilogue = Epilogue::bias;
          call.bias = bias;
        }
        call.out = expected;
        backend::cpu().gemm.multiply(call, {});
        call.out = out;
        int blocks = 0;
        backend::multiply_in_f32(call, [&](const GemmArguments& block) {
          ++blocks;
          for (const ArrayView* view : {&block.out, &block.a, &block.b}) {
            EXPECT_EQ(view->dtype, DType::f32);
            EXPECT_LE(view->numel(), 1 << 22);
          }
          EXPECT_LE(block.out.numel(), 1 << 19);
          backend::cpu().gemm.multiply(block, {});
        });
        EXPECT_GE(blocks, s.batch * std::max({s.rows, s.columns, s.depth}) > 1'000 ? 2 : 1);
        EXPECT_TRUE(close(out.get(), expected.get(), 4 * rounding(result) + 1e-5));
      }
}

TEST(F32Products, TakeABatchOfWhichOneOperandIsShared) {
  const auto a = DeviceArray(DType::f16, {4, 9, 20}, cpu).randomize(1);
  const auto b = DeviceArray(DType::f16, {1, 20, 7}, cpu).randomize(2);
  const auto out = DeviceArray(DType::f16, {4, 9, 7}, cpu);
  const auto expected = DeviceArray(DType::f16, {4, 9, 7}, cpu);
  ArrayView shared = b;
  shared.shape[0] = 4;
  shared.strides[0] = 0;
  backend::cpu().gemm.multiply({.out = expected, .a = a, .b = shared}, {});
  backend::multiply_in_f32({.out = out, .a = a, .b = shared}, [](const GemmArguments& block) {
    backend::cpu().gemm.multiply(block, {});
  });
  EXPECT_TRUE(close(out.get(), expected.get(), 2 * rounding(DType::f16)));
}

}  // namespace
}  // namespace lockstep::test
