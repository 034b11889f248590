#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/grad.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "tensor/counting.hpp"

namespace lockstep {
namespace {

using testing::counting;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The message of what `call` throws as `Kind`.
template <class Kind, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing of the expected kind was thrown";
  return {};
}

TEST(View, SharesMemoryWithItsBase) {
  Tensor x = zeros({2, 3});
  for (const Tensor& view : {x.reshape({3, 2}), x.transpose(0, 1), x.slice(1, 0, 2), x.select(0, 1),
                             x.unsqueeze(0), x.detach(), x.expand({4, 2, 3})})
    EXPECT_EQ(view.impl().storage, x.impl().storage);
  x.select(0, 1).fill_(7.0);
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(0, 0, 0, 7, 7, 7));
  x.transpose(0, 1).select(0, 2).fill_(9.0);
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(0, 0, 9, 7, 7, 9));
}

TEST(View, KeepsTheMemoryAliveAfterItsBase) {
  Tensor view;
  {
    const Tensor base = counting({4});
    view = base.slice(0, 2, 4);
  }
  EXPECT_THAT(view.to_vector<double>(), ElementsAre(2, 3));
}

TEST(View, HasTheStridesOfItsWindow) {
  const Tensor x = counting({3, 4, 5});
  EXPECT_EQ(x.strides(), (Strides{20, 5, 1}));
  EXPECT_EQ(x.permute({2, 0, 1}).strides(), (Strides{1, 20, 5}));
  EXPECT_EQ(x.slice(1, 1, 4, 2).strides(), (Strides{20, 10, 1}));
  EXPECT_EQ(x.select(1, 2).strides(), (Strides{20, 1}));
  EXPECT_EQ(x.expand({2, 3, 4, 5}).strides(), (Strides{0, 20, 5, 1}));
  EXPECT_FALSE(x.permute({2, 0, 1}).is_contiguous());
  EXPECT_TRUE(x.slice(0, 1, 3).is_contiguous());
}

TEST(Slice, ClipsAndCountsFromTheEndAsPythonDoes) {
  const Tensor x = counting({6});
  EXPECT_THAT(x.slice(0, -3, 100).to_vector<double>(), ElementsAre(3, 4, 5));
  EXPECT_THAT(x.slice(0, 1, -1, 2).to_vector<double>(), ElementsAre(1, 3));
  EXPECT_EQ(x.slice(0, 4, 2).numel(), 0);
  EXPECT_THROW(x.slice(0, 0, 6, 0), InvalidArgument);
  EXPECT_THROW(x.slice(1, 0, 1), InvalidArgument);
}

TEST(Slice, TakesAnyStep) {
  const Tensor x = counting({5});
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(x.slice(0, 0, 5, most).to_vector<double>(), ElementsAre(0));
  EXPECT_THAT(x.slice(0, 3, most, most - 1).to_vector<double>(), ElementsAre(3));
  EXPECT_THAT(x.slice(0, 0, 5, 4).to_vector<double>(), ElementsAre(0, 4));
  EXPECT_EQ(x.slice(0, 5, 5, most).numel(), 0);
}

TEST(Select, RefusesAnIndexOutOfRange) {
  const Tensor x = counting({2, 3});
  EXPECT_THAT(x.select(1, -1).to_vector<double>(), ElementsAre(2, 5));
  EXPECT_THAT(message_of<InvalidArgument>([&] { x.select(1, 3); }),
              AllOf(HasSubstr("index 3"), HasSubstr("[-3, 3)"), HasSubstr("[2, 3]")));
  EXPECT_THROW(x.select(1, -4), InvalidArgument);
}

TEST(Select, CountsBeyond32Bits) {
  const Tensor repeated = zeros({1}).expand({5000000000});
  EXPECT_EQ(repeated.select(0, 3000000000).item(), 0.0);
  EXPECT_THROW(repeated.select(0, 5000000000), InvalidArgument);
  // Never read: only where the last element lies is of interest.
  const Tensor large = from_blob(nullptr, {4294967299}, {DType::u8});
  EXPECT_EQ(large.select(0, -1).data<std::uint8_t>() - large.data<std::uint8_t>(), 4294967298);
}

TEST(Reshape, IsAViewWhereStridesAllow) {
  const Tensor x = counting({4, 6});
  const Tensor half = x.slice(1, 0, 3);  // strides [6, 1]
  const auto shares = [&](const Tensor& y) { return y.impl().storage == x.impl().storage; };
  EXPECT_TRUE(shares(x.reshape({2, 12})));
  EXPECT_TRUE(shares(half.reshape({2, 2, 3})));
  EXPECT_TRUE(shares(half.reshape({4, 1, 3, 1})));
  EXPECT_TRUE(shares(half.unsqueeze(1).reshape({2, 2, 3})));
  EXPECT_TRUE(shares(x.transpose(0, 1).reshape({3, 2, 4})));
  // Joined across an extent of 1 in the middle.
  EXPECT_TRUE(shares(x.slice(0, 0, 2).reshape({2, 1, 6}).transpose(0, 1).reshape({12})));
  EXPECT_FALSE(shares(half.reshape({12})));
  EXPECT_FALSE(shares(x.transpose(0, 1).reshape({24})));
}

TEST(Reshape, KeepsTheOrderOfElementsForEveryLayout) {
  const Tensor x = counting({2, 3, 4});
  const std::vector<Tensor> layouts{x, x.permute({2, 0, 1}), x.slice(2, 0, 4, 2).expand({2, 3, 2}),
                                    x.slice(1, 0, 2),
                                    x.select(0, 1).unsqueeze(1).expand({3, 2, 4})};
  for (const Tensor& layout : layouts) {
    const auto expected = layout.to_vector<double>();
    const std::int64_t n = layout.numel();
    for (const Shape& shape : {Shape{n}, Shape{n, 1}, Shape{2, n / 2}, Shape{n / 4, 2, 1, 2}})
      EXPECT_EQ(layout.reshape(shape).to_vector<double>(), expected)
          << layout.strides() << " to " << shape;
  }
}

TEST(Reshape, InfersOneExtent) {
  const Tensor x = counting({2, 6});
  EXPECT_EQ(x.reshape({3, -1}).shape(), (Shape{3, 4}));
  EXPECT_EQ(x.reshape({-1}).shape(), (Shape{12}));
  EXPECT_THROW(x.reshape({-1, -1}), InvalidArgument);
  EXPECT_THROW(empty({0, 3}).reshape({0, -1}), InvalidArgument);
  EXPECT_EQ(empty({0, 3}).reshape({-1, 3}).shape(), (Shape{0, 3}));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                x.reshape({5, -1});
              }),
              AllOf(HasSubstr("12 elements"), HasSubstr("[5, -1]")));
}

TEST(Flatten, JoinsDimensions) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(x.flatten().shape(), (Shape{24}));
  EXPECT_EQ(x.flatten(1).shape(), (Shape{2, 12}));
  EXPECT_EQ(x.flatten(0, 1).shape(), (Shape{6, 4}));
  EXPECT_EQ(counting({}).flatten().shape(), (Shape{1}));
  EXPECT_THROW(x.flatten(2, 1), InvalidArgument);
}

TEST(Permute, NamesTheFaultOfABadOrder) {
  const Tensor x = counting({2, 3});
  EXPECT_THAT(message_of<InvalidArgument>([&] { x.permute({0, 0}); }), HasSubstr("[0, 0]"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { x.permute({0}); }), HasSubstr("2 dimensions"));
}

TEST(Expand, RefusesOtherExtents) {
  const Tensor x = counting({2, 1});
  EXPECT_EQ(x.expand({3, -1, 4}).shape(), (Shape{3, 2, 4}));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                x.expand({3, 4});
              }),
              AllOf(HasSubstr("[2, 1]"), HasSubstr("[3, 4]")));
  EXPECT_THROW(x.expand({2}), InvalidArgument);
}

TEST(Squeeze, RemovesOnlyExtentsOfOne) {
  const Tensor x = counting({2, 1, 3});
  EXPECT_EQ(x.squeeze(1).shape(), (Shape{2, 3}));
  EXPECT_EQ(x.squeeze(0).shape(), (Shape{2, 1, 3}));
  EXPECT_EQ(x.unsqueeze(-1).shape(), (Shape{2, 1, 3, 1}));
}

TEST(ChannelsLast, RoundTripsValues) {
  const Tensor x = counting({2, 3, 4, 5});
  const Tensor y = x.channels_last();
  EXPECT_TRUE(y.is_channels_last());
  EXPECT_FALSE(y.is_contiguous());
  EXPECT_EQ(y.strides(), (Strides{60, 1, 15, 3}));
  EXPECT_TRUE(equal(x, y));
  EXPECT_TRUE(y.channels_last().is_same(y));
  const Tensor back = y.contiguous();
  EXPECT_TRUE(back.is_contiguous());
  EXPECT_TRUE(equal(x, back));
  EXPECT_TRUE(y.to(DType::f32).is_channels_last());
  EXPECT_TRUE(exp(y).is_channels_last());
  EXPECT_TRUE(empty_like(y).is_channels_last());
  EXPECT_THROW(counting({2, 3}).channels_last(), InvalidArgument);
}

TEST(Contiguous, TakesFewChannelsTogetherInAnyDtype) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::u8})
    for (const std::int64_t channels : {1, 2, 3, 4, 5, 7, 9}) {
      const Shape shape{2, channels, 5, 27};  // more than a band of pixels
      const Tensor x = (counting(shape) % 251.0).to(dtype);
      const Tensor y = x.permute({0, 2, 3, 1}).contiguous();
      EXPECT_TRUE(y.is_contiguous());
      const auto from = x.to(DType::f64).to_vector<double>(),
                 to = y.to(DType::f64).to_vector<double>();
      for (std::size_t i = 0; i < to.size(); ++i) {
        const auto c = static_cast<std::size_t>(channels), pixels = std::size_t{5 * 27};
        const std::size_t image = i / (c * pixels), pixel = i / c % pixels;
        ASSERT_EQ(to[i], from[(image * c + i % c) * pixels + pixel]) << dtype << " " << channels;
      }
    }
}

TEST(Flip, TurnsLinesOfAnyLength) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::u8})
    for (const std::int64_t length : {1, 2, 7, 8, 15, 16, 17, 33, 100}) {
      const Tensor x = (counting({3, length}) % 251.0).to(dtype);
      const auto from = x.to(DType::f64).to_vector<double>(),
                 to = flip(x, {1}).to(DType::f64).to_vector<double>();
      for (std::int64_t i = 0; i < x.numel(); ++i)
        ASSERT_EQ(to[static_cast<std::size_t>(i)],
                  from[static_cast<std::size_t>(i / length * length + length - 1 - i % length)])
            << dtype << " " << length;
    }
}

TEST(Contiguous, CopiesOnlyWhereItMust) {
  const Tensor x = counting({2, 3});
  EXPECT_TRUE(x.contiguous().is_same(x));
  EXPECT_TRUE(equal(x.transpose(0, 1).contiguous(), x.transpose(0, 1)));
  EXPECT_NE(x.clone().data_ptr(), x.data_ptr());
}

TEST(Flat, IteratesOverContiguousDataOnly) {
  const Tensor x = counting({2, 3});
  double total = 0;
  for (const double value : x.flat<double>()) total += value;
  EXPECT_EQ(total, 15.0);
  EXPECT_THAT(message_of<InvalidArgument>([&] { x.flat<float>(); }),
              AllOf(HasSubstr("f32"), HasSubstr("f64")));
  EXPECT_THAT(message_of<InvalidArgument>([&] { x.transpose(0, 1).flat<double>(); }),
              HasSubstr("[1, 3]"));
}

TEST(ToVector, ConvertsToBool) {
  EXPECT_EQ(counting({3}).to_vector<bool>(), (std::vector<bool>{false, true, true}));
}

TEST(Item, NeedsOneElement) {
  EXPECT_EQ(full({1, 1}, 2.5).item(), 2.5);
  EXPECT_EQ(counting({4}).select(0, 3).item(), 3.0);
  EXPECT_EQ(scalar(7, {.dtype = DType::i64}).item(), 7.0);
  EXPECT_THAT(message_of<InvalidArgument>([] { counting({2, 3}).item(); }), HasSubstr("[2, 3]"));
}

TEST(Tensor, ReportsThatItIsUndefined) {
  const Tensor nothing;
  EXPECT_FALSE(nothing.defined());
  EXPECT_FALSE(nothing.requires_grad());
  EXPECT_THAT(message_of<InvalidArgument>([&] { nothing.shape(); }), HasSubstr("undefined"));
}

TEST(Conversion, RoundTripsBetweenAllDtypes) {
  constexpr DType all[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                           DType::i64, DType::i32, DType::u8,   DType::boolean};
  const Tensor bits = tensor<double>({0, 1, 1, 0});
  for (const DType from : all)
    for (const DType to : all)
      EXPECT_TRUE(equal(bits.to(from).to(to).to(DType::f64), bits)) << from << " to " << to;
  const Tensor numbers = tensor<double>({-3.0, 0.5, 100.0});
  EXPECT_THAT(numbers.to(DType::i32).to_vector<std::int64_t>(), ElementsAre(-3, 0, 100));
  EXPECT_THAT(numbers.to(DType::bf16).to_vector<double>(), ElementsAre(-3.0, 0.5, 100.0));
  EXPECT_TRUE(numbers.to(DType::f64).is_same(numbers));
}

TEST(Conversion, KeepsTheOrderOfViews) {
  const Tensor x = counting({2, 3}).transpose(0, 1);
  EXPECT_THAT(x.to(DType::f32).to_vector<float>(), ElementsAre(0, 3, 1, 4, 2, 5));
}

// Whether a view changes anything depends on extents, as of a batch of one: what it is must not.
TEST(Views, OfTheSameShapeHaveGradientsAndHooksOfTheirOwn) {
  const std::vector<std::function<Tensor(const Tensor&)>> views = {[](const Tensor& x) { return x.reshape({2}); },
                                                                   [](const Tensor& x) { return x.view({-1}); },
                                                                   [](const Tensor& x) { return x.flatten(); },
                                                                   [](const Tensor& x) { return x.squeeze(); },
                                                                   [](const Tensor& x) { return x.squeeze(0); },
                                                                   [](const Tensor& x) { return x.expand({2}); },
                                                                   [](const Tensor& x) { return expand_as(x, x); },
                                                                   [](const Tensor& x) { return x.t(); }};
  for (const auto& view : views) {
    const Tensor w = tensor<double>({1, 2}).set_requires_grad();
    const Tensor seen = view(w);
    const Tensor loss = sum(seen * 3.0) + sum(w) * 10.0;
    EXPECT_THAT(autograd::grad({loss}, {seen}, {.retain_graph = true})[0].to_vector<double>(),
                ElementsAre(3, 3));
    seen.register_hook([](const Tensor& gradient) { return gradient * 0.0; });
    loss.backward();
    EXPECT_THAT(w.grad().to_vector<double>(), ElementsAre(10, 10));
    const Tensor constant = no_grad([&] { return view(w); });
    EXPECT_FALSE(constant.requires_grad());
    EXPECT_EQ(constant.data_ptr(), w.data_ptr());
    EXPECT_TRUE(view(constant).is_same(constant)) << "nothing flows through it";
  }
}

TEST(InPlace, BroadcastsTheOperand) {
  Tensor x = counting({2, 3});
  x.add_(tensor<double>({10, 20, 30}), 2.0);
  EXPECT_THAT(x.to_vector<double>(), ElementsAre(20, 41, 62, 23, 44, 65));
  x.mul_(tensor<double>({0, 1}).reshape({2, 1})).mul_(2.0);
  EXPECT_THAT(x.to_vector<double>(), ElementsAre(0, 0, 0, 46, 88, 130));
  x.transpose(0, 1).copy_(tensor<float>({1, 2}));
  EXPECT_THAT(x.to_vector<double>(), ElementsAre(1, 1, 1, 2, 2, 2));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                x.add_(counting({4, 2, 3}));
              }),
              AllOf(HasSubstr("add_"), HasSubstr("[4, 2, 3]"), HasSubstr("[2, 3]")));
  EXPECT_THAT(message_of<InvalidArgument>([&] { x.add_(zeros({3})); }),
              AllOf(HasSubstr("f64"), HasSubstr("f32")));
}

}  // namespace
}  // namespace lockstep
