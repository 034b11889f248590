#include "arguments/interpolation.hpp"

#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

class InterpolationContract : public ContractTest {
 protected:
  const kernels::InterpolationKernels& family() const { return backend().interpolation; }
  DeviceArray image(const Shape& shape, bool channels_last) const {
    return array(shape, channels_last ? channels_last_strides(shape) : contiguous_strides(shape));
  }
  /// One row of an image, resized along its width.
  Values resized(const Values& row, InterpolationAxis axis) const {
    axis.in = static_cast<std::int64_t>(row.size());
    const auto x = array({1, 1, 1, axis.in}).set(row), y = array({1, 1, 1, axis.out});
    family().forward({.y = y, .x = x, .width = axis}, stream());
    return y.get();
  }
};

TEST_P(InterpolationContract, NearestTakesThePositionBefore) {
  EXPECT_EQ(resized({1, 2, 3}, {.out = 7}), (Values{1, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(resized({1, 2, 3, 4, 5}, {.out = 2}), (Values{1, 3}));
  EXPECT_EQ(resized({1, 2, 3}, {.out = 5, .step = 1 / 1.75}), (Values{1, 1, 2, 2, 3}));
}

TEST_P(InterpolationContract, BilinearMixesNeighbours) {
  EXPECT_EQ(resized({0, 4}, {.out = 4, .linear = true}), (Values{0, 1, 3, 4}));
  EXPECT_EQ(resized({0, 4, 8}, {.out = 5, .linear = true, .align_corners = true}),
            (Values{0, 2, 4, 6, 8}));
  EXPECT_EQ(resized({3, 4, 8}, {.out = 1, .linear = true, .align_corners = true}), (Values{3}));
}

TEST_P(InterpolationContract, KeepsInfinitiesToThemselves) {
  const Values y = resized({0, INFINITY, 0, 2}, {.out = 4, .linear = true});
  EXPECT_EQ(y, (Values{0, INFINITY, 0, 2}));
}

TEST_P(InterpolationContract, BackwardKeepsInfinitiesToThemselves) {
  const InterpolationAxis width{.in = 5, .out = 2};  // takes positions 0 and 2
  for (const bool channels_last : {false, true}) {
    const auto dy = image({1, 2, 1, 2}, channels_last).set({INFINITY, 3, NAN, 4});
    const auto dx = image({1, 2, 1, 5}, channels_last);
    family().backward({.dx = dx, .dy = dy, .width = width}, stream());
    const Values to = dx.get();
    EXPECT_EQ(Values(to.begin(), to.begin() + 5), (Values{INFINITY, 0, 3, 0, 0}));
    EXPECT_TRUE(std::isnan(to[5]));
    EXPECT_EQ(Values(to.begin() + 6, to.end()), (Values{0, 4, 0, 0}));
  }
}

TEST_P(InterpolationContract, BackwardIsTheTransposeOfForward) {
  for (const bool channels_last : {false, true})
    for (const bool linear : {false, true}) {
      const InterpolationAxis height{.in = 4, .out = 9, .linear = linear};
      const InterpolationAxis width{.in = 7, .out = 3, .linear = linear, .align_corners = linear};
      const auto x = image({2, 9, 4, 7}, channels_last).randomize(1);
      const auto dy = image({2, 9, 9, 3}, channels_last).randomize(2);
      const auto y = image({2, 9, 9, 3}, channels_last), dx = image({2, 9, 4, 7}, channels_last);
      family().forward({.y = y, .x = x, .height = height, .width = width}, stream());
      family().backward({.dx = dx, .dy = dy, .height = height, .width = width}, stream());
      const Values in = x.get(), out = y.get(), from = dy.get(), to = dx.get();
      double forward = 0, backward = 0, terms = 0;
      for (std::size_t i = 0; i < out.size(); ++i) {
        forward += out[i] * from[i];
        terms += std::abs(out[i] * from[i]);
      }
      for (std::size_t i = 0; i < in.size(); ++i) backward += in[i] * to[i];
      EXPECT_NEAR(forward, backward, tolerance(4) * terms) << "channels last: " << channels_last;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, InterpolationContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
