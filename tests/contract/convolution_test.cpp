#include "arguments/convolution.hpp"

#include <optional>

#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

using kernels::ConvGeometry;

/// A convolution to try, with the memory order of its images and weights.
struct ConvolutionCase {
  Shape x, weight;
  ConvGeometry geometry{};
  bool channels_last = false;
  bool channels_last_weight = false;

  Shape y() const {
    Shape shape{x[0], weight[0], 0, 0};
    for (int d = 0; d < 2; ++d) {
      const auto i = static_cast<std::size_t>(d);
      shape[2 + d] =
          (x[2 + d] + 2 * geometry.padding[i] - geometry.dilation[i] * (weight[2 + d] - 1) - 1) /
              geometry.stride[i] +
          1;
    }
    return shape;
  }
};

std::size_t at(const Shape& s, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  return static_cast<std::size_t>(((a * s[1] + b) * s[2] + c) * s[3] + d);
}

/// Calls `visit(y index, x index, weight index)` for every product of a convolution.
template <class Visit>
void for_each_product(const ConvolutionCase& c, Visit&& visit) {
  const Shape y = c.y();
  const ConvGeometry& g = c.geometry;
  const std::int64_t per_group = y[1] / g.groups;
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (std::int64_t o = 0; o < y[1]; ++o)
      for (std::int64_t i = 0; i < c.weight[1]; ++i)
        for (std::int64_t h = 0; h < y[2]; ++h)
          for (std::int64_t w = 0; w < y[3]; ++w)
            for (std::int64_t a = 0; a < c.weight[2]; ++a)
              for (std::int64_t b = 0; b < c.weight[3]; ++b) {
                const auto row = h * g.stride[0] - g.padding[0] + a * g.dilation[0];
                const auto column = w * g.stride[1] - g.padding[1] + b * g.dilation[1];
                if (row < 0 || row >= c.x[2] || column < 0 || column >= c.x[3]) continue;
                visit(at(y, n, o, h, w), at(c.x, n, o / per_group * c.weight[1] + i, row, column),
                      at(c.weight, o, i, a, b));
              }
}

class ConvolutionContract : public ContractTest {
 protected:
  DeviceArray image(const Shape& shape, bool channels_last, unsigned seed) const {
    return array(shape, channels_last ? channels_last_strides(shape) : contiguous_strides(shape))
        .randomize(seed);
  }

  void check(const ConvolutionCase& c) {
    SCOPED_TRACE(::testing::Message() << "x " << c.x << " weight " << c.weight << " groups "
                                      << c.geometry.groups << " channels-last " << c.channels_last);
    x_.emplace(image(c.x, c.channels_last, 1));
    weight_.emplace(image(c.weight, c.channels_last_weight, 2));
    y_.emplace(image(c.y(), c.channels_last, 3));
    check_forward(c);
    y_->randomize(5);
    check_backward_data(c);
    check_backward_weight(c);
  }

 private:
  void check_forward(const ConvolutionCase& c) {
    auto bias = array({c.weight[0]}).randomize(4);
    const Values x = x_->get(), w = weight_->get(), shift = bias.get();
    Values plain(y_->get().size()), shifted;
    for_each_product(c, [&](auto y, auto in, auto tap) { plain[y] += x[in] * w[tap]; });
    const auto plane = static_cast<std::size_t>(c.y()[2] * c.y()[3]);
    for (std::size_t i = 0; i < plain.size(); ++i)
      shifted.push_back(plain[i] + shift[i / plane % shift.size()]);
    family().forward({.y = *y_, .x = *x_, .weight = *weight_, .bias = bias, .geometry = c.geometry},
                     stream());
    EXPECT_TRUE(close(y_->get(), shifted, tolerance(8)));
    family().forward({.y = *y_, .x = *x_, .weight = *weight_, .geometry = c.geometry}, stream());
    EXPECT_TRUE(close(y_->get(), plain, tolerance(8)));
  }
  void check_backward_data(const ConvolutionCase& c) {
    const Values dy = y_->get(), w = weight_->get();
    auto dx = image(c.x, c.channels_last, 6);
    Values expected(dx.get().size());
    for_each_product(c, [&](auto y, auto in, auto tap) { expected[in] += dy[y] * w[tap]; });
    family().backward_data({.dx = dx, .dy = *y_, .weight = *weight_, .geometry = c.geometry},
                           stream());
    EXPECT_TRUE(close(dx.get(), expected, tolerance(8)));
    const Values before = dx.get();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    family().backward_data(
        {.dx = dx, .dy = *y_, .weight = *weight_, .geometry = c.geometry, .accumulate = true},
        stream());
    EXPECT_TRUE(close(dx.get(), expected, tolerance(16)));
  }
  void check_backward_weight(const ConvolutionCase& c) {
    const Values dy = y_->get(), x = x_->get();
    auto dweight = image(c.weight, c.channels_last_weight, 7);
    Values expected(dweight.get().size()), before = dweight.get();
    for_each_product(c, [&](auto y, auto in, auto tap) { expected[tap] += dy[y] * x[in]; });
    Values sum = expected;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
    family().backward_weight(
        {.dweight = dweight, .dy = *y_, .x = *x_, .geometry = c.geometry, .accumulate = true},
        stream());
    EXPECT_TRUE(close(dweight.get(), sum, tolerance(16)));
    family().backward_weight(
        {.dweight = dweight, .dy = *y_, .x = *x_, .geometry = c.geometry, .accumulate = false},
        stream());
    EXPECT_TRUE(close(dweight.get(), expected, tolerance(16)));
    if (dtype() == DType::f64) return;
    DeviceArray wide = array(DType::f32, c.weight);  // sums of bf16 and f16 products may stay f32
    for (const double times : {1.0, 2.0}) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = times * expected[i];
      family().backward_weight(
          {.dweight = wide, .dy = *y_, .x = *x_, .geometry = c.geometry, .accumulate = times > 1},
          stream());
      EXPECT_TRUE(close(wide.get(), sum, tolerance(16))) << "into f32";
    }
  }
  const kernels::ConvolutionKernels& family() const { return backend().convolution; }

  std::optional<DeviceArray> x_, weight_, y_;
};

TEST_P(ConvolutionContract, PlainWindows) {
  check({{2, 3, 8, 7}, {5, 3, 3, 3}});
  check({{1, 4, 6, 6}, {8, 4, 1, 1}});
}
TEST_P(ConvolutionContract, StridesAndPadding) {
  check({{2, 3, 9, 11}, {4, 3, 3, 5}, {.stride = {2, 3}, .padding = {1, 2}}});
  check({{1, 3, 16, 16}, {8, 3, 7, 7}, {.stride = {2, 2}, .padding = {3, 3}}});
  check({{2, 16, 7, 7}, {32, 16, 1, 1}, {.stride = {2, 2}}});
}
TEST_P(ConvolutionContract, Dilation) {
  check({{2, 4, 10, 9}, {6, 4, 3, 3}, {.padding = {2, 1}, .dilation = {2, 3}}});
}
TEST_P(ConvolutionContract, Groups) {
  check({{2, 6, 7, 7}, {9, 2, 3, 3}, {.padding = {1, 1}, .groups = 3}});
  check({{2, 16, 7, 7}, {16, 1, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 16}});
}
/// Narrow bf16 images may be computed side by side: no image may see its neighbour.
TEST_P(ConvolutionContract, NarrowChannelsLastImages) {
  check({{12, 8, 4, 4}, {16, 8, 3, 3}, {.padding = {1, 1}}, true});
  check({{6, 8, 8, 8}, {16, 8, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}, true});
  check({{6, 8, 5, 5}, {16, 8, 3, 5}, {.stride = {1, 3}, .padding = {0, 2}}, true, true});
  check({{4, 8, 5, 7}, {16, 8, 1, 1}, {.stride = {2, 2}}, true});
  check({{4, 8, 3, 3}, {16, 8, 1, 1}, {.padding = {2, 2}}, true});
}
TEST_P(ConvolutionContract, PointwiseOverChannelsLastImages) {
  check({{3, 8, 5, 6}, {16, 8, 1, 1}, {}, true});
  check({{2, 16, 3, 20}, {8, 16, 1, 1}, {}, true, true});
  check({{2, 64, 5, 20}, {40, 64, 1, 1}, {}, true});
}
/// Of which a library may take the points apart first.
TEST_P(ConvolutionContract, PointwiseAtStridesOverChannelsLastImages) {
  check({{1, 4, 10, 6}, {3, 4, 1, 1}, {.stride = {2, 1}}, true});
  check({{1, 6, 10, 6}, {17, 6, 1, 1}, {.stride = {1, 2}}, true});
  check({{1, 2, 10, 6}, {8, 2, 1, 1}, {.stride = {2, 2}}, true});
}
/// Weights that a primitive may want in blocks of 16 to 64 outputs, of numbers of inputs that fill
/// no whole tile, or leave one without its neighbour.
TEST_P(ConvolutionContract, ChannelsLastImagesOfManyChannels) {
  for (const std::int64_t out : {16, 32, 48, 64, 96, 80, 192})
    check({{2, 20, 6, 18}, {out, 20, 3, 3}, {.padding = {1, 1}}, true});
  check({{1, 34, 4, 17}, {128, 34, 3, 2}, {.padding = {1, 0}}, true});
  check({{1, 33, 4, 17}, {64, 33, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}, true});
}
TEST_P(ConvolutionContract, ChannelsLast) {
  check({{2, 3, 8, 7}, {5, 3, 3, 3}, {.padding = {1, 1}}, true, true});
  check({{2, 16, 8, 8}, {16, 16, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}, true, false});
  check({{2, 6, 7, 7}, {9, 2, 3, 3}, {.groups = 3}, true, true});
  check({{2, 3, 8, 7}, {5, 3, 3, 3}, {.padding = {1, 1}}, false, true});
}
/// Enough of them for Winograd's tiles of 4 x 4, which reach over the images' edges.
TEST_P(ConvolutionContract, ManyImagesOfManyChannels) {
  check({{8, 32, 8, 8}, {32, 32, 3, 3}, {.padding = {1, 1}}, true});
  check({{3, 32, 13, 10}, {35, 32, 3, 3}, {.padding = {1, 1}}, false, true});
}
TEST_P(ConvolutionContract, ImagesThatFitBothMemoryFormats) {
  check({{2, 1, 8, 7}, {5, 1, 3, 3}, {.padding = {1, 1}}, true, false});
  check({{2, 1, 8, 7}, {5, 1, 3, 3}, {.padding = {1, 1}}, false, true});
  check({{2, 6, 1, 1}, {5, 6, 1, 1}, {}, true, true});
}
TEST_P(ConvolutionContract, KernelLargerThanTheImageReadsPadding) {
  check({{1, 2, 2, 3}, {3, 2, 5, 5}, {.padding = {2, 2}}});
}

INSTANTIATE_TEST_SUITE_P(
    Backends, ConvolutionContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
