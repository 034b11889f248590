#include <gtest/gtest.h>

#include "backend/backend.hpp"
#include "backend/cuda/cudnn_ops.hpp"
#include "findings.hpp"
#include "lockstep/runtime/stream.hpp"
#include "support/closeness.hpp"
#include "support/device_array.hpp"

namespace lockstep::test {
namespace {

using backend::cudnn::AttentionArrays;
using backend::cudnn::ConvArrays;
using backend::cudnn::ConvDirection;
using kernels::AttentionOptions;
using kernels::ConvGeometry;
using simgpu::Finding;
using simgpu::testing::Findings;

const Device gpu = cuda(0);
StreamRef stream() { return current_stream(gpu); }

/// Arrays of an attention call, [N, H, T, D] in memory.
struct Attention {
  DType dtype = DType::bf16;
  std::int64_t queries = 16, keys = 24, depth = 16;

  Shape shape(std::int64_t rows) const { return {2, 2, rows, depth}; }
  DeviceArray query_like(unsigned seed) const {
    return DeviceArray(dtype, shape(queries), gpu).randomize(seed);
  }
  DeviceArray key_like(unsigned seed) const {
    return DeviceArray(dtype, shape(keys), gpu).randomize(seed);
  }
  DeviceArray q = query_like(1), k = key_like(2), v = key_like(3), out = query_like(4),
              dout = query_like(5), dq = query_like(6), dk = key_like(7), dv = key_like(8),
              lse = DeviceArray(DType::f32, {2, 2, queries}, gpu).randomize(9);

  AttentionArrays forward() const { return {.q = q, .k = k, .v = v, .out = out, .lse = lse}; }
  AttentionArrays backward() const {
    AttentionArrays arrays = forward();
    arrays.dout = dout;
    arrays.dq = dq;
    arrays.dk = dk;
    arrays.dv = dv;
    return arrays;
  }
};

bool forward(const AttentionArrays& arrays) {
  return backend::cudnn::attention_forward(arrays, {}, stream());
}
bool backward(const AttentionArrays& arrays) {
  return backend::cudnn::attention_backward(arrays, {}, stream());
}

TEST(SimulatedCudnn, IsNotMissing) { EXPECT_EQ(backend::cudnn::missing(), ""); }

TEST(SimulatedCudnn, FusesAttentionOfSixteenBitTypesOnly) {
  EXPECT_TRUE(forward(Attention{.dtype = DType::bf16}.forward()));
  EXPECT_TRUE(forward(Attention{.dtype = DType::f16}.forward()));
  EXPECT_FALSE(forward(Attention{.dtype = DType::f32}.forward()));
  EXPECT_FALSE(forward(Attention{.dtype = DType::f64}.forward()));
  EXPECT_TRUE(backward(Attention{}.backward()));
  synchronize(stream());
}

TEST(SimulatedCudnn, HeadSizesAreMultiplesOfEightUpTo256) {
  for (const std::int64_t depth : {8, 128, 256})
    EXPECT_TRUE(forward(Attention{.depth = depth}.forward())) << depth;
  for (const std::int64_t depth : {4, 12, 264})
    EXPECT_FALSE(forward(Attention{.depth = depth}.forward())) << depth;
  synchronize(stream());
}

TEST(SimulatedCudnn, AttentionReadsVectorsOfSixteenBytes) {
  const Attention attention;
  AttentionArrays arrays = attention.forward();
  arrays.q.strides[2] += 4;  // rows of 40 bytes
  EXPECT_FALSE(forward(arrays));
  arrays = attention.forward();
  arrays.k.data = arrays.k.as<std::uint16_t>() + 1;
  EXPECT_FALSE(forward(arrays));
}

TEST(SimulatedCudnn, ASingleQueryAndKeyHaveNoFusedBackward) {
  const Attention one{.queries = 1, .keys = 1};
  EXPECT_TRUE(forward(one.forward()));
  EXPECT_FALSE(backward(one.backward()));
  synchronize(stream());
}

TEST(SimulatedCudnn, MasksAreAddedAndSpanQueriesAndKeys) {
  const Attention attention;
  const DeviceArray added = DeviceArray(DType::bf16, {1, 1, 16, 24}, gpu).randomize(10);
  const DeviceArray boolean(DType::boolean, {1, 1, 16, 24}, gpu);
  AttentionArrays arrays = attention.forward();
  arrays.mask = added;
  arrays.mask.shape = {2, 2, 16, 24};
  arrays.mask.strides = {0, 0, 24, 1};
  EXPECT_TRUE(forward(arrays));
  arrays.mask.strides[2] = 0;
  EXPECT_FALSE(forward(arrays));
  arrays.mask = boolean;
  EXPECT_FALSE(forward(arrays));
  synchronize(stream());
}

/// A small convolution, its arrays in the wanted formats.
struct Conv {
  bool image_last = false, weight_last = false;
  DType dtype = DType::f32;

  DeviceArray make(const Shape& shape, bool last, unsigned seed) const {
    return DeviceArray(dtype, shape,
                       last ? channels_last_strides(shape) : contiguous_strides(shape), gpu)
        .randomize(seed);
  }
  DeviceArray x = make({2, 4, 6, 5}, image_last, 1), w = make({6, 4, 3, 3}, weight_last, 2),
              y = make({2, 6, 6, 5}, image_last, 3);

  bool run(ConvDirection direction, const ConvGeometry& geometry = {.padding = {1, 1}}) const {
    return backend::cudnn::convolution(direction, {x, w, y}, geometry, stream());
  }
};

TEST(SimulatedCudnn, ConvolutionsHaveOneMemoryFormat) {
  EXPECT_TRUE((Conv{false, false}.run(ConvDirection::forward)));
  EXPECT_TRUE((Conv{true, true}.run(ConvDirection::backward_data)));
  EXPECT_FALSE((Conv{true, false}.run(ConvDirection::forward)));
  EXPECT_FALSE((Conv{false, true}.run(ConvDirection::backward_weight)));
  EXPECT_FALSE((Conv{}.run(ConvDirection::forward, {.padding = {0, 0}})));  // y does not fit
  synchronize(stream());
}

TEST(SimulatedCudnn, ConvolutionsOfDoublesAreInNchwAndWithoutGroups) {
  const ConvGeometry groups{.padding = {1, 1}, .groups = 2};
  for (const DType dtype : {DType::f32, DType::f64}) {
    const bool is_wide = dtype == DType::f64;
    EXPECT_TRUE((Conv{false, false, dtype}.run(ConvDirection::forward)));
    EXPECT_EQ((Conv{true, true, dtype}.run(ConvDirection::forward)), !is_wide);
    Conv grouped{false, false, dtype};
    grouped.w = grouped.make({6, 2, 3, 3}, false, 2);
    EXPECT_EQ(grouped.run(ConvDirection::backward_data, groups), !is_wide);
  }
  synchronize(stream());
}

TEST(SimulatedCudnn, ConvolutionsRunInTheOrderOfTheStream) {
  const Conv conv;
  DeviceArray expected(DType::f32, conv.y.view().shape);
  DeviceArray x(DType::f32, conv.x.view().shape), w(DType::f32, conv.w.view().shape);
  x.set(conv.x.get());
  w.set(conv.w.get());
  backend::cpu().convolution.forward(
      {.y = expected, .x = x, .weight = w, .geometry = {.padding = {1, 1}}}, StreamRef{});
  EXPECT_TRUE(conv.run(ConvDirection::forward));
  EXPECT_EQ(conv.y.get(), expected.get());
}

TEST(SimulatedCudnn, AnInputThatNothingWroteIsReported) {
  const Findings findings;
  Attention attention;
  attention.v = DeviceArray(DType::bf16, attention.shape(attention.keys), gpu);
  EXPECT_TRUE(forward(attention.forward()));
  synchronize(stream());
  EXPECT_TRUE(findings.only(Finding::uninitialized_read, "reads v")) << findings.text();
}

}  // namespace
}  // namespace lockstep::test
