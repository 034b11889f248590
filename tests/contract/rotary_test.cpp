#include "arguments/rotary.hpp"

#include <cmath>

#include <gmock/gmock.h>

#include "contract/backends.hpp"
#include "lockstep/autograd/ops/attention.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::test {
namespace {

struct Extents {
  std::int64_t n, heads, time, width;
};

/// Memory ordered N, T, H, D, with `gap` elements behind each position.
Strides heads_inside(const Extents& e, std::int64_t gap = 0) {
  const std::int64_t row = e.heads * e.width + gap;
  return {e.time * row, e.width, row, 1};
}

class RotaryContract : public ContractTest {
 protected:
  /// @param shared whether all images have the same angles.
  void check(const Extents& e, const Strides& to, const Strides& from, bool shared,
             bool in_place = false) {
    const Shape shape{e.n, e.heads, e.time, e.width};
    const std::int64_t pairs = e.width / 2;
    const Shape table{e.n, e.time, pairs};
    const Strides strides{shared ? 0 : e.time * pairs, pairs, 1};
    const Device device = GetParam().device;
    const DeviceArray x = array(shape, from).randomize(1);
    const DeviceArray y = array(shape, in_place ? from : to);
    const DeviceArray cos = DeviceArray(statistics_dtype(), table, strides, device).randomize(2);
    const DeviceArray sin = DeviceArray(statistics_dtype(), table, strides, device).randomize(3);
    const Values in = x.get(), c = cos.get(), s = sin.get();
    for (const bool inverse : {false, true}) {
      const DeviceArray copy = array(shape, from).set(in);
      const DeviceArray& out = in_place ? copy : y;
      backend().rotary.rotate(
          {.y = out, .x = in_place ? copy : x, .cos = cos, .sin = sin, .inverse = inverse},
          stream());
      EXPECT_TRUE(close(out.get(), expected(e, in, c, s, inverse ? -1 : 1), tolerance(2)));
    }
  }

 private:
  static Values expected(const Extents& e, const Values& x, const Values& cos, const Values& sin,
                         double direction) {
    const auto half = static_cast<std::size_t>(e.width / 2);
    const auto heads = static_cast<std::size_t>(e.heads), time = static_cast<std::size_t>(e.time);
    Values y(x.size());
    for (std::size_t row = 0; row * 2 * half < x.size(); ++row)
      for (std::size_t i = 0; i < half; ++i) {
        const std::size_t angle = (row / time / heads * time + row % time) * half + i;
        const std::size_t first = row * 2 * half + i, second = first + half;
        y[first] = x[first] * cos[angle] - x[second] * direction * sin[angle];
        y[second] = x[second] * cos[angle] + x[first] * direction * sin[angle];
      }
    return y;
  }
};

TEST_P(RotaryContract, TurnsPairsOfHeadsThatLieInsideAPosition) {
  const Extents llama{2, 8, 5, 64};
  check(llama, heads_inside(llama), heads_inside(llama), true);
  check(llama, heads_inside(llama), heads_inside(llama, 192), false);
}
TEST_P(RotaryContract, TakesAnyStridesAndExtents) {
  for (const Extents& e : {Extents{1, 1, 1, 2}, Extents{2, 3, 4, 6}, Extents{1, 4, 3, 10},
                           Extents{3, 5, 2, 32}, Extents{1, 6, 1, 16}, Extents{2, 0, 3, 4}}) {
    SCOPED_TRACE(::testing::Message() << e.heads << " heads of " << e.width);
    const Strides heads_outside = contiguous_strides({e.n, e.heads, e.time, e.width});
    check(e, heads_inside(e), heads_outside, false);
    check(e, heads_outside, heads_inside(e, 3), true);
  }
}
TEST_P(RotaryContract, TurnsInPlace) {
  const Extents even{2, 8, 3, 32}, odd{1, 3, 5, 6};
  check(even, {}, heads_inside(even), true, true);
  check(odd, {}, heads_inside(odd, 7), false, true);
}
TEST_P(RotaryContract, TurnsMoreThanOneThreadAndOneTileOfIt) {
  const Extents large{1, 16, 67, 128};
  check(large, heads_inside(large), heads_inside(large), true);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RotaryContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

TEST(RotaryEmbedding, RefusesWhatDoesNotFit) {
  const Tensor x = zeros({2, 3, 4, 6}), angles = zeros({4, 3});
  EXPECT_THROW(rotary_embedding(zeros({2, 4, 6}), angles, angles), InvalidArgument);
  EXPECT_THROW(rotary_embedding(zeros({2, 3, 4, 5}), angles, angles), InvalidArgument);
  EXPECT_THROW(rotary_embedding(x, zeros({4, 6}), angles), InvalidArgument);
  EXPECT_THROW(rotary_embedding(x, angles, zeros({3, 1, 4, 3})), InvalidArgument);
  EXPECT_THROW(rotary_embedding(x, angles, zeros({2, 3, 4, 3})), InvalidArgument);
  EXPECT_THROW(rotary_embedding(x, angles, zeros({4, 3}, {DType::i64})), InvalidArgument);
  for (const Shape& shape : {Shape{5, 3}, Shape{2, 3, 4, 3}, Shape{1, 1, 1, 4, 3}})
    EXPECT_THAT([&] { rotary_embedding(x, zeros(shape), angles); },
                ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr(
                    detail::concat("rotary_embedding: cos or sin of dtype f32 and shape ", shape,
                                   "; expected floating ones, rows of 3, that broadcast to "
                                   "[2, 1, 4, 3]"))));
  Tensor learned = zeros({4, 3});
  learned.set_requires_grad();
  EXPECT_THROW(rotary_embedding(x, learned, angles), Unsupported);
  Tensor weight = zeros({1, 1, 4, 6});
  weight.set_requires_grad();
  EXPECT_THROW(rotary_embedding_(weight, angles, angles), InvalidArgument);
}

TEST(RotaryEmbedding, TurnsPartsOfOneProductWhereTheyAre) {
  const Tensor packed = randn({2, 5, 24}), angles = randn({5, 3});
  const Tensor cos = lockstep::cos(angles), sin = lockstep::sin(angles);
  const auto heads = [](const Tensor& x) { return x.reshape({2, 5, -1, 6}).transpose(1, 2); };
  const Tensor turned = rotary_embedding(heads(packed.slice(2, 0, 12)), cos, sin);
  const Tensor before = packed.clone();
  Tensor queries = heads(packed.slice(2, 0, 12));
  rotary_embedding_(queries, cos, sin);
  EXPECT_TRUE(equal(queries, turned));
  EXPECT_FALSE(equal(packed.slice(2, 0, 12), before.slice(2, 0, 12)));
  EXPECT_TRUE(equal(packed.slice(2, 12, 24), before.slice(2, 12, 24)));
}

TEST(RotaryEmbedding, ReadsItsAnglesBeforeItOverwritesThem) {
  Tensor x = randn({1, 1, 2, 4});
  const Tensor before = x.clone(), angles = x.select(0, 0).select(0, 0).slice(1, 0, 2);
  const Tensor wanted = rotary_embedding(before, angles.clone(), angles.clone());
  EXPECT_TRUE(equal(rotary_embedding_(x, angles, angles), wanted));
}

}  // namespace
}  // namespace lockstep::test
