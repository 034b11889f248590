#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/place.hpp"
#include "support/refusal.hpp"

// Tensors written as libtorch's users write them.

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal;

// What is assigned to a view or to grad() would be lost: only what has a name takes a tensor.
static_assert(!std::is_assignable_v<Tensor, Tensor>);
static_assert(!std::is_assignable_v<Tensor, const Tensor&>);
static_assert(std::is_nothrow_move_assignable_v<Tensor> && std::is_copy_assignable_v<Tensor>);

TEST(View, ViewsInAnotherShapeOrRefuses) {
  Tensor x = arange(12).reshape({3, 4});
  EXPECT_EQ(x.view({2, -1}).shape(), (Shape{2, 6}));
  EXPECT_EQ(x.view({12}).data_ptr(), x.data_ptr());
  EXPECT_EQ(x.slice(1, 0, 4, 2).view({3, 2, 1}).data_ptr(), x.data_ptr());
  const Tensor turned = x.transpose(0, 1);
  EXPECT_THAT(refusal([&] { turned.view({12}); }),
              AllOf(HasSubstr("[4, 3]"), HasSubstr("reshape()")));
  EXPECT_THROW(x.view({5}), InvalidArgument);
}

TEST(View, TakesOneIndexOfTheFirstDimension) {
  Tensor x = arange(6).reshape({2, 3});
  EXPECT_THAT(x[1].to_vector<std::int64_t>(), ElementsAre(3, 4, 5));
  EXPECT_EQ(x[-1][0].item<std::int64_t>(), 3);
  x[0] *= 10;
  EXPECT_THAT(x.to_vector<std::int64_t>(), ElementsAre(0, 10, 20, 3, 4, 5));
  EXPECT_THROW(x[2], InvalidArgument);
}

TEST(View, NarrowsWithinBoundsOnly) {
  const Tensor x = arange(5);
  EXPECT_THAT(x.narrow(0, 1, 3).to_vector<std::int64_t>(), ElementsAre(1, 2, 3));
  EXPECT_THAT(x.narrow(0, -2, 2).to_vector<std::int64_t>(), ElementsAre(3, 4));
  EXPECT_EQ(x.narrow(0, 5, 0).numel(), 0);
  EXPECT_THROW(x.narrow(0, 3, 3), InvalidArgument);
  EXPECT_THROW(x.narrow(0, -6, 1), InvalidArgument);
  EXPECT_THROW(x.narrow(0, 0, std::numeric_limits<std::int64_t>::max()), InvalidArgument);
}

TEST(View, TakesDiagonalsAsViews) {
  Tensor x = arange(12).reshape({3, 4});
  EXPECT_THAT(x.diagonal().to_vector<std::int64_t>(), ElementsAre(0, 5, 10));
  EXPECT_THAT(x.diagonal(1).to_vector<std::int64_t>(), ElementsAre(1, 6, 11));
  EXPECT_THAT(x.diagonal(-1, 0, -1).to_vector<std::int64_t>(), ElementsAre(4, 9));
  EXPECT_EQ(x.diagonal(4).shape(), (Shape{0}));
  x.diagonal().fill_(0);
  EXPECT_EQ(sum(x).item(), 66 - 15);
  EXPECT_THROW(x.diagonal(0, 1, 1), InvalidArgument);
}

TEST(View, DropsExtentsOfOneAndTransposesMatrices) {
  EXPECT_EQ(zeros({1, 3, 1, 2}).squeeze().shape(), (Shape{3, 2}));
  EXPECT_EQ(zeros({2, 3}).t().shape(), (Shape{3, 2}));
  EXPECT_EQ(zeros({2}).t().shape(), (Shape{2}));
  EXPECT_THROW(zeros({2, 3, 4}).t(), InvalidArgument);
}

TEST(Item, IsConvertedToTheTypeAskedFor) {
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  EXPECT_EQ(tensor<std::int64_t>({large}).item<std::int64_t>(), large);
  EXPECT_EQ(scalar(2.5).item<float>(), 2.5F);
  EXPECT_EQ(scalar(2.5).item(), 2.5);
  EXPECT_EQ(scalar(2.5).item<int>(), 2);
  EXPECT_TRUE(scalar(1.0, {DType::boolean}).item<bool>());
  EXPECT_THROW(zeros({2}).item<float>(), InvalidArgument);
}

TEST(DeviceText, NamesDevices) {
  EXPECT_EQ(Device("cpu"), cpu);
  EXPECT_EQ(Device("cuda"), cuda(0));
  EXPECT_EQ(Device("cuda:1"), cuda(1));
  EXPECT_EQ(Device(DeviceType::cuda, 3), cuda(3));
  for (const char* wrong :
       {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda1", "cpu:0", "cuda: 1"})
    EXPECT_THAT(refusal([&] { Device{std::string_view(wrong)}; }), HasSubstr("cuda:1")) << wrong;
  EXPECT_THAT(refusal([] { Device("cuda:99999"); }), HasSubstr("below 32768"));
}

TEST(Factories, TakeADTypeOrADeviceAfterTheShape) {
  EXPECT_EQ(zeros({2, 3}, DType::f64).dtype(), DType::f64);
  EXPECT_EQ(ones({2}, DType::i64).dtype(), DType::i64);
  EXPECT_EQ(full({2}, 3.0, DType::i32).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{3, 3}));
  EXPECT_EQ(empty({2}, DType::bf16).dtype(), DType::bf16);
  EXPECT_EQ(randn({4}, DType::f64).dtype(), DType::f64);
  EXPECT_EQ(rand({4}, Device("cpu")).device(), cpu);
  EXPECT_EQ(zeros({2}, {}).dtype(), DType::f32);
}

/// The same on the CPU and on the GPU.
class OnDevices : public ::testing::TestWithParam<testing::Place> {
 protected:
  void SetUp() override {
    if (is_missing(GetParam())) GTEST_SKIP() << "no CUDA device on this machine";
  }
  static Tensor here(const Tensor& x) { return x.to(GetParam().device); }
};
class Members : public OnDevices {};
class Comparisons : public OnDevices {};
class Logic : public OnDevices {};
class InPlaceOperators : public OnDevices {};

std::vector<testing::Place> devices() {
  std::vector<testing::Place> all = testing::gpu_places();
  all.push_back({"cpu"});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Devices, Members, ::testing::ValuesIn(devices()), testing::place_name);
INSTANTIATE_TEST_SUITE_P(Devices, Comparisons, ::testing::ValuesIn(devices()), testing::place_name);
INSTANTIATE_TEST_SUITE_P(Devices, Logic, ::testing::ValuesIn(devices()), testing::place_name);
INSTANTIATE_TEST_SUITE_P(Devices, InPlaceOperators, ::testing::ValuesIn(devices()),
                         testing::place_name);

TEST_P(Members, AreTheFunctionsOfTheirNames) {
  const Tensor x = here(tensor<double>({-1.5, 0.5, 2.0, 0.25})).reshape({2, 2});
  EXPECT_TRUE(equal(x.relu(), relu(x)));
  EXPECT_TRUE(equal(x.clamp(-1, 1), clamp(x, -1, 1)));
  EXPECT_TRUE(equal(x.pow(2), square(x)));
  EXPECT_TRUE(equal(x.softmax(1), softmax(x, 1)));
  EXPECT_TRUE(equal(x.max(), amax(x)));
  EXPECT_TRUE(equal(x.max(1).second, argmax(x, 1)));
  EXPECT_TRUE(equal(x.min(0, true).first, amin(x, {0}, true)));
  EXPECT_EQ(x.argmax().item<std::int64_t>(), 2);
  EXPECT_TRUE(equal(x.var({1}), var(x, {1})));
  EXPECT_EQ(x.eq(2.0).sum().item<std::int64_t>(), 1);
  EXPECT_TRUE(x.any().item<bool>());
  EXPECT_TRUE(equal(x.masked_fill(x > 1.0, 0.0), where(x > 1.0, zeros_like(x), x)));
}

TEST_P(Comparisons, AreOperators) {
  const Tensor x = here(tensor<float>({-1, 0.5F, 2})), y = here(tensor<float>({0, 0.5F, 1}));
  using Truth = std::vector<bool>;
  EXPECT_EQ((x > 0.5).to_vector<bool>(), (Truth{false, false, true}));
  EXPECT_EQ((0.5 > x).to_vector<bool>(), (Truth{true, false, false}));
  EXPECT_EQ((x >= 0.5).to_vector<bool>(), (Truth{false, true, true}));
  EXPECT_EQ((0.5 >= x).to_vector<bool>(), (Truth{true, true, false}));
  EXPECT_EQ((x < y).to_vector<bool>(), (Truth{true, false, false}));
  EXPECT_EQ((x <= y).to_vector<bool>(), (Truth{true, true, false}));
  EXPECT_EQ((x == y).to_vector<bool>(), (Truth{false, true, false}));
  EXPECT_EQ((x != y).to_vector<bool>(), (Truth{true, false, true}));
  EXPECT_EQ((2 == x).to_vector<bool>(), (Truth{false, false, true}));
  EXPECT_EQ((!(x == y)).to_vector<bool>(), (Truth{true, false, true}));
}

TEST_P(Comparisons, OfIntegersWithNumbersAreExact) {
  const std::int64_t large = std::numeric_limits<std::int64_t>::max();
  const Tensor x = here(tensor<std::int64_t>({0, 1, large}));
  using Truth = std::vector<bool>;
  EXPECT_EQ((x > 0.5).to_vector<bool>(), (Truth{false, true, true}));
  EXPECT_EQ((x <= 0.5).to_vector<bool>(), (Truth{true, false, false}));
  EXPECT_EQ((x == 0.5).to_vector<bool>(), (Truth{false, false, false}));
  EXPECT_EQ((x >= 0x1p63).to_vector<bool>(), (Truth{false, false, false}));
  EXPECT_EQ((x < 1e300).to_vector<bool>(), (Truth{true, true, true}));
  EXPECT_EQ((x != NAN).to_vector<bool>(), (Truth{true, true, true}));
  const Tensor bytes = here(tensor<std::uint8_t>({0, 255}));
  EXPECT_EQ((bytes > -1).to_vector<bool>(), (Truth{true, true}));
  EXPECT_EQ((bytes == 256).to_vector<bool>(), (Truth{false, false}));
  const Tensor truth = here(tensor<bool>({false, true}));
  EXPECT_EQ((truth == 1).to_vector<bool>(), (Truth{false, true}));
  EXPECT_EQ((truth == 2).to_vector<bool>(), (Truth{false, false}));
  EXPECT_EQ((truth > 0.5).to_vector<bool>(), (Truth{false, true}));
}

TEST_P(Logic, CountsEverythingButZeroAsTrue) {
  const Tensor x = here(tensor<float>({0, NAN, -2})), y = here(tensor<std::int64_t>({1, 0, 3}));
  using Truth = std::vector<bool>;
  EXPECT_EQ(logical_and(x, y).to_vector<bool>(), (Truth{false, false, true}));
  EXPECT_EQ(logical_or(x, y).to_vector<bool>(), (Truth{true, true, true}));
  EXPECT_EQ(logical_xor(x, y).to_vector<bool>(), (Truth{true, true, false}));
  EXPECT_EQ(logical_not(x).to_vector<bool>(), (Truth{true, false, false}));
  EXPECT_TRUE(x.any().item<bool>());
  EXPECT_FALSE(x.all().item<bool>());
  EXPECT_TRUE(here(zeros({0})).all().item<bool>());
  EXPECT_FALSE(here(zeros({0})).any().item<bool>());
}

TEST_P(InPlaceOperators, ChangeTheTensor) {
  Tensor x = here(tensor<float>({1, 2, 3}));
  const Tensor alias = x;
  x *= 2;
  x += 1.5;
  x -= 0.5;
  x /= 2;
  EXPECT_THAT(alias.to_vector<float>(), ElementsAre(1.5F, 2.5F, 3.5F));
  x += here(ones({1}));
  x -= here(tensor<float>({0.5F, 0.5F, 1}));
  x *= x;
  x /= here(full({3}, 2.0));
  EXPECT_THAT(alias.to_vector<float>(), ElementsAre(2.0F, 4.5F, 6.125F));
  x.sub_(here(ones({3})), 2.0);
  EXPECT_THAT(alias.to_vector<float>(), ElementsAre(0.0F, 2.5F, 4.125F));
  x.masked_fill_(x > 1, -1);
  EXPECT_THAT(alias.to_vector<float>(), ElementsAre(0, -1, -1));
}

TEST_P(InPlaceOperators, RefuseWhatTheDTypeOrTheTapeCannotHold) {
  Tensor whole = here(arange(3));
  EXPECT_THAT(refusal([&] { whole *= 0.5; }), HasSubstr("mul_"));
  EXPECT_THAT(refusal<Unsupported>([&] { whole /= 2; }), HasSubstr("div_"));
  Tensor truth = here(tensor<bool>({true}));
  EXPECT_THAT(refusal<Unsupported>([&] { truth += 1; }), HasSubstr("add_"));
  Tensor x = here(ones({2})).detach().set_requires_grad();
  EXPECT_THAT(refusal([&] { x -= 1; }), HasSubstr("sub_"));
  EXPECT_THAT(refusal([&] { whole.masked_fill_(whole, 1); }), HasSubstr("bool"));
  EXPECT_THAT(refusal([&] {
                whole.masked_fill_(here(ones({2, 3})) > 0, 1);
              }),
              HasSubstr("does not fit"));
}

TEST_P(InPlaceOperators, DrawRandomNumbersIntoAnyLayout) {
  Tensor x = here(zeros({40, 50}));
  x.transpose(0, 1).uniform_(2.0, 3.0);
  EXPECT_GE(x.min().item(), 2.0);
  EXPECT_LT(x.max().item(), 3.0);
  EXPECT_NEAR(x.mean().item(), 2.5, 0.05);
  x.slice(0, 0, 40, 2).normal_(10.0, 2.0);
  EXPECT_NEAR(x.slice(0, 0, 40, 2).mean().item(), 10.0, 0.3);
  EXPECT_LT(x.slice(0, 1, 40, 2).max().item(), 3.0);
  EXPECT_THROW(x.uniform_(1.0, 0.0), InvalidArgument);
  EXPECT_THROW(here(arange(3)).normal_(), Unsupported);
}

}  // namespace
}  // namespace lockstep
