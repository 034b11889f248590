#include "arguments/pooling.hpp"

#include <cmath>
#include <limits>

#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

using kernels::PoolGeometry;

struct PoolingCase {
  Shape x, y;
  PoolGeometry geometry{};
  bool channels_last = false;
};

/// Cuts of an image that the tests try: the third is what ceil mode gives, with a last window that
/// leaves the image.
const PoolingCase pooling_cases[] = {
    {{2, 3, 8, 6}, {2, 3, 4, 3}, {.kernel = {2, 2}, .stride = {2, 2}}},
    {{2, 16, 9, 9}, {2, 16, 5, 5}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
    {{1, 2, 6, 7}, {1, 2, 3, 4}, {.kernel = {3, 2}, .stride = {2, 2}}},
    {{1, 2, 6, 7}, {1, 2, 4, 4}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
    {{2, 5, 6, 6}, {2, 5, 5, 2}, {.kernel = {2, 3}, .stride = {1, 3}}, true},
    {{1, 3, 4, 4}, {1, 3, 1, 1}, {.kernel = {4, 4}, .stride = {4, 4}}, true},
    {{2, 67, 7, 6}, {2, 67, 4, 3}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, true},
};

class PoolingContract : public ContractTest {
 protected:
  static Strides order(const Shape& shape, bool channels_last) {
    return channels_last ? channels_last_strides(shape) : contiguous_strides(shape);
  }
  DeviceArray image(const Shape& shape, const PoolingCase& c) const {
    return array(shape, order(shape, c.channels_last));
  }
  DeviceArray positions(const PoolingCase& c) const {
    return {DType::i32, c.y, order(c.y, c.channels_last), GetParam().device};
  }
  const kernels::PoolingKernels& family() const { return backend().pooling; }

  /// Calls `visit(y index, x index, window extent in the padded image)` over all windows.
  template <class Visit>
  static void for_each_pair(const PoolingCase& c, Visit&& visit) {
    const auto& g = c.geometry;
    for (std::int64_t plane = 0; plane < c.x[0] * c.x[1]; ++plane)
      for (std::int64_t i = 0; i < c.y[2]; ++i)
        for (std::int64_t j = 0; j < c.y[3]; ++j) {
          const auto top = i * g.stride[0] - g.padding[0], left = j * g.stride[1] - g.padding[1];
          const auto bottom = std::min(top + g.kernel[0], c.x[2] + g.padding[0]);
          const auto right = std::min(left + g.kernel[1], c.x[3] + g.padding[1]);
          for (auto h = std::max<std::int64_t>(top, 0); h < std::min(bottom, c.x[2]); ++h)
            for (auto w = std::max<std::int64_t>(left, 0); w < std::min(right, c.x[3]); ++w)
              visit(static_cast<std::size_t>((plane * c.y[2] + i) * c.y[3] + j),
                    static_cast<std::size_t>((plane * c.x[2] + h) * c.x[3] + w),
                    static_cast<double>((bottom - top) * (right - left)));
        }
  }
  /// What each window's sum is divided by.
  static Values divisors(const PoolingCase& c) {
    Values counts(static_cast<std::size_t>(numel(c.y)));
    for_each_pair(c, [&](auto y, auto, double padded) {
      counts[y] = c.geometry.count_include_pad ? padded : counts[y] + 1;
    });
    return counts;
  }
};

TEST_P(PoolingContract, MaximumAndItsPosition) {
  for (const PoolingCase& c : pooling_cases) {
    auto x = image(c.x, c).randomize(1), y = image(c.y, c), index = positions(c);
    const Values in = x.get();
    Values best(static_cast<std::size_t>(numel(c.y)), -INFINITY), where(best.size());
    for_each_pair(c, [&](auto to, auto from, double) {
      if (!(in[from] > best[to])) return;
      best[to] = in[from];
      where[to] = static_cast<double>(from % static_cast<std::size_t>(c.x[2] * c.x[3]));
    });
    family().max({.y = y, .index = index, .x = x, .geometry = c.geometry}, stream());
    EXPECT_EQ(y.get(), best);
    EXPECT_EQ(index.get(), where);

    auto dy = image(c.y, c).randomize(2), dx = image(c.x, c).randomize(3);
    const Values gradient = dy.get();
    Values expected(in.size());
    const auto plane_y = static_cast<std::size_t>(c.y[2] * c.y[3]);
    const auto plane_x = static_cast<std::size_t>(c.x[2] * c.x[3]);
    for (std::size_t i = 0; i < gradient.size(); ++i)
      expected[i / plane_y * plane_x + static_cast<std::size_t>(where[i])] += gradient[i];
    family().max_backward({.dx = dx, .dy = dy, .index = index, .geometry = c.geometry}, stream());
    EXPECT_TRUE(close(dx.get(), expected, tolerance()));
  }
}

TEST_P(PoolingContract, TheFirstOfEqualMaximaWinsAndNaNIsLargest) {
  auto x = array({1, 1, 2, 4}).set({1, 1, 5, 2, 1, 1, 7, NAN}), y = array({1, 1, 1, 2});
  auto index = array(DType::i32, {1, 1, 1, 2});
  family().max({.y = y, .index = index, .x = x, .geometry = {.kernel = {2, 2}, .stride = {2, 2}}},
               stream());
  EXPECT_EQ(index.get(), (Values{0, 7}));
  EXPECT_EQ(y.get()[0], 1);
  EXPECT_TRUE(std::isnan(y.get()[1]));
}

TEST_P(PoolingContract, MeanWithAndWithoutPadding) {
  for (PoolingCase c : pooling_cases)
    for (const bool count_padding : {true, false}) {
      c.geometry.count_include_pad = count_padding;
      auto x = image(c.x, c).randomize(1), y = image(c.y, c);
      const Values in = x.get(), divisor = divisors(c);
      Values expected(divisor.size());
      for_each_pair(c, [&](auto to, auto from, double) { expected[to] += in[from] / divisor[to]; });
      family().average({.y = y, .x = x, .geometry = c.geometry}, stream());
      EXPECT_TRUE(close(y.get(), expected, tolerance()));

      auto dy = image(c.y, c).randomize(2), dx = image(c.x, c).randomize(3);
      const Values gradient = dy.get();
      Values back(in.size());
      for_each_pair(c,
                    [&](auto to, auto from, double) { back[from] += gradient[to] / divisor[to]; });
      family().average_backward({.dx = dx, .dy = dy, .geometry = c.geometry}, stream());
      EXPECT_TRUE(close(dx.get(), back, tolerance()));
    }
}

TEST_P(PoolingContract, AdaptiveMean) {
  for (const bool channels_last : {false, true})
    for (const Shape& pooled : {Shape{2, 3, 1, 1}, Shape{2, 3, 3, 2}, Shape{2, 3, 7, 5}}) {
      const PoolingCase c{{2, 3, 7, 5}, pooled, {}, channels_last};
      auto x = image(c.x, c).randomize(1), y = image(c.y, c);
      auto dy = image(c.y, c).randomize(2), dx = image(c.x, c).randomize(3);
      const Values in = x.get(), gradient = dy.get();
      Values expected(gradient.size()), back(in.size());
      for (std::int64_t i = 0; i < numel(pooled); ++i) {
        const auto j = i % pooled[3], row = i / pooled[3] % pooled[2];
        const auto plane = i / (pooled[2] * pooled[3]);
        const auto top = row * 7 / pooled[2], bottom = (7 * (row + 1) + pooled[2] - 1) / pooled[2];
        const auto left = j * 5 / pooled[3], right = (5 * (j + 1) + pooled[3] - 1) / pooled[3];
        const auto count = static_cast<double>((bottom - top) * (right - left));
        for (auto h = top; h < bottom; ++h)
          for (auto w = left; w < right; ++w) {
            const auto from = static_cast<std::size_t>((plane * 7 + h) * 5 + w);
            expected[static_cast<std::size_t>(i)] += in[from] / count;
            back[from] += gradient[static_cast<std::size_t>(i)] / count;
          }
      }
      family().average({.y = y, .x = x, .geometry = {.adaptive = true}}, stream());
      family().average_backward({.dx = dx, .dy = dy, .geometry = {.adaptive = true}}, stream());
      EXPECT_TRUE(close(y.get(), expected, tolerance()));
      EXPECT_TRUE(close(dx.get(), back, tolerance()));
    }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, PoolingContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
