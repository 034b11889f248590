#include "backend/onednn/joined_images.hpp"

#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

using kernels::ConvGeometry;

/// Side by side, where processors gain by it or not, images do not see their neighbours.
TEST(JoinedImages, ComputeWhatImagesAloneDo) {
  struct Case {
    Shape x, weight, y;
    ConvGeometry geometry;
  };
  const auto images = [](const Shape& shape, unsigned seed) {
    return DeviceArray(DType::bf16, shape, channels_last_strides(shape), cpu).randomize(seed);
  };
  for (const Case& c :
       {Case{{12, 8, 4, 4}, {16, 8, 3, 3}, {12, 16, 4, 4}, {.padding = {1, 1}}},
        Case{{6, 8, 8, 8}, {16, 8, 3, 3}, {6, 16, 4, 4}, {.stride = {2, 2}, .padding = {1, 1}}},
        Case{{6, 8, 5, 5}, {16, 8, 3, 5}, {6, 16, 3, 2}, {.stride = {1, 3}, .padding = {0, 2}}}}) {
    SCOPED_TRACE(::testing::Message() << c.x << c.weight);
    auto x = images(c.x, 1), y = images(c.y, 2), dx = images(c.x, 3);
    auto weight = DeviceArray(DType::bf16, c.weight, cpu).randomize(4);
    auto dweight = DeviceArray(DType::bf16, c.weight, cpu);
    auto bias = DeviceArray(DType::bf16, {c.weight[0]}, cpu).randomize(5);
    const backend::JoinedImages joined(x, weight, y, c.geometry);
    ASSERT_TRUE(joined);
    const auto& alone = backend::cpu().convolution;
    const double tolerance = 2 * rounding(DType::bf16);

    const kernels::ConvolutionArguments forward{y, x, weight, bias, c.geometry};
    joined.forward(forward, {});
    const Values result = y.get();
    alone.forward(forward, {});
    EXPECT_TRUE(close(result, y.get(), tolerance));

    const kernels::ConvolutionDataGradientArguments data{dx, y, weight, c.geometry};
    joined.backward_data(data, {});
    const Values data_gradient = dx.get();
    alone.backward_data(data, {});
    EXPECT_TRUE(close(data_gradient, dx.get(), tolerance));

    const kernels::ConvolutionWeightGradientArguments weights{dweight, y, x, c.geometry};
    joined.backward_weight(weights, {});
    const Values weight_gradient = dweight.get();
    alone.backward_weight(weights, {});
    EXPECT_TRUE(close(weight_gradient, dweight.get(), tolerance));
  }
}

}  // namespace
}  // namespace lockstep::test
