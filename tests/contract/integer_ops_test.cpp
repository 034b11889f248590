#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/node.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/place.hpp"
#include "support/refusal.hpp"

// Integers: exact results, floating quotients, and numbers that a dtype cannot hold.

namespace lockstep::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::refusal;

TEST(IntegerOps, RefuseFractionsInTheNameOfTheOp) {
  const Tensor bytes = ones({2}, {DType::u8});
  const auto about = [](const char* op) {
    return AllOf(HasSubstr(std::string(op) + ": dtype u8"), HasSubstr("0.5"), HasSubstr("to("));
  };
  EXPECT_THAT(refusal([&] { return bytes * 0.5; }), about("mul"));
  EXPECT_THAT(refusal([&] { return bytes + 0.5; }), about("add"));
  EXPECT_THAT(refusal([&] { return bytes - 0.5; }), about("sub"));
  EXPECT_THAT(refusal([&] { return 0.5 - bytes; }), about("sub"));
  EXPECT_THAT(refusal([&] { return Tensor(bytes).mul_(0.5); }), about("mul_"));
}

void expect_exact_integers(Device device) {
  using Whole = std::vector<std::int64_t>;
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  const Tensor a = tensor<std::int64_t>({large, -7}).to(device);
  const Tensor b = tensor<std::int64_t>({2, 2}).to(device);
  EXPECT_EQ((a + b).to_vector<std::int64_t>(), (Whole{large + 2, -5}));
  EXPECT_EQ((a * b).to_vector<std::int64_t>(), (Whole{2 * large, -14}));
  EXPECT_EQ(div(a, b, RoundingMode::trunc).to_vector<std::int64_t>(), (Whole{large / 2, -3}));
  EXPECT_EQ(div(a, b, RoundingMode::floor).to_vector<std::int64_t>(), (Whole{large / 2, -4}));
  EXPECT_EQ(sum(a).to_vector<std::int64_t>(), (Whole{large - 7}));
  EXPECT_EQ(abs(a).to_vector<std::int64_t>(), (Whole{large, 7}));
}

TEST(IntegerOps, ComputeExactly) { expect_exact_integers(cpu); }

class IntegerOpsOnGpu : public testing::OnGpu {};
TEST_F(IntegerOpsOnGpu, ComputeExactly) { expect_exact_integers(device); }

/// Numbers that no double is.
void expect_exact_numbers(Device device) {
  using Whole = std::vector<std::int64_t>;
  using Truth = std::vector<bool>;
  const TensorOptions i64{DType::i64, device};
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  const Tensor one = ones({1}, i64), near = tensor<std::int64_t>({large - 1, large}).to(device);
  EXPECT_EQ((one + large).to_vector<std::int64_t>(), Whole{large + 1});
  EXPECT_EQ((one - large).to_vector<std::int64_t>(), Whole{1 - large});
  EXPECT_EQ((large - one).to_vector<std::int64_t>(), Whole{large - 1});
  EXPECT_EQ((one * 6364136223846793005).to_vector<std::int64_t>(), Whole{6364136223846793005});
  EXPECT_EQ(affine(one, large, large).to_vector<std::int64_t>(), Whole{2 * large});
  EXPECT_EQ(clamp(near, large, large).to_vector<std::int64_t>(), (Whole{large, large}));
  EXPECT_EQ((near == large).to_vector<bool>(), (Truth{false, true}));
  EXPECT_EQ((near < large).to_vector<bool>(), (Truth{true, false}));
  EXPECT_EQ((large > near).to_vector<bool>(), (Truth{true, false}));
  EXPECT_EQ((one.to(DType::i32) == large).to_vector<bool>(), Truth{false});
  EXPECT_EQ(full({2}, large, i64).to_vector<std::int64_t>(), (Whole{large, large}));
  EXPECT_EQ(masked_fill(one, one > 0, large).to_vector<std::int64_t>(), Whole{large});
  Tensor changed = ones({2, 2}, i64);
  changed.slice(1, 0, 1).fill_(large);
  changed.add_(large).mul_(-1).sub_(large);
  EXPECT_EQ(changed.to_vector<std::int64_t>(),
            (Whole{-3 * large, -2 * large - 1, -3 * large, -2 * large - 1}));
  changed.masked_fill_(changed < 0, large);
  EXPECT_EQ(changed.to_vector<std::int64_t>(), Whole(4, large));
}

TEST(IntegerOps, MeetIntegersExactly) { expect_exact_numbers(cpu); }
TEST_F(IntegerOpsOnGpu, MeetIntegersExactly) { expect_exact_numbers(device); }

constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

/// Sums and products are right modulo the range of their dtype, whatever the number.
void expect_arithmetic_to_wrap(Device device) {
  using Whole = std::vector<std::int64_t>;
  const std::int64_t past_double = (std::int64_t{1} << 53) + 1;
  const Tensor narrow = full({1}, 5, {DType::i32, device});
  for (const Scalar number : {Scalar(std::int64_t{3000000000}), Scalar(3e9)}) {
    EXPECT_EQ((narrow + number).to_vector<std::int64_t>(), Whole{3000000005 - (1LL << 32)});
    EXPECT_EQ((narrow - number).to_vector<std::int64_t>(), Whole{5 - 3000000000 + (1LL << 32)});
    EXPECT_EQ((number - narrow).to_vector<std::int64_t>(), Whole{2999999995 - (1LL << 32)});
  }
  EXPECT_EQ((narrow + past_double).to_vector<std::int64_t>(), Whole{6});
  EXPECT_EQ((narrow - past_double).to_vector<std::int64_t>(), Whole{4});
  EXPECT_EQ((past_double - narrow).to_vector<std::int64_t>(), Whole{-4});
  EXPECT_EQ((narrow * past_double).to_vector<std::int64_t>(), Whole{5});
  EXPECT_EQ((narrow * most).to_vector<std::int64_t>(), Whole{-5});
  EXPECT_EQ(affine(narrow, past_double, most).to_vector<std::int64_t>(), Whole{4});
  Tensor changed = narrow.clone();
  changed.add_(past_double).sub_(least).mul_(most);
  EXPECT_EQ(changed.to_vector<std::int64_t>(), Whole{-6});
  const Tensor bytes = full({1}, 5, {DType::u8, device});
  EXPECT_EQ((bytes + 3e9).to_vector<std::int64_t>(), Whole{3000000005 % 256});
  EXPECT_EQ((bytes * most).to_vector<std::int64_t>(), Whole{251});
}

TEST(IntegerOps, WrapAroundWhateverTheNumber) { expect_arithmetic_to_wrap(cpu); }
TEST_F(IntegerOpsOnGpu, WrapAroundWhateverTheNumber) { expect_arithmetic_to_wrap(device); }

/// The number whose negative is none.
void expect_the_least_number_subtracted(Device device) {
  using Whole = std::vector<std::int64_t>;
  const Tensor x = tensor<std::int64_t>({-1, -7, 3}).to(device);
  const Whole expected{most, most - 6, least + 3};
  for (const Scalar number : {Scalar(least), Scalar(-0x1p63)}) {
    EXPECT_EQ((x - number).to_vector<std::int64_t>(), expected);
    EXPECT_EQ(x.clone().sub_(number).to_vector<std::int64_t>(), expected);
    EXPECT_EQ((x + number).to_vector<std::int64_t>(), expected);
    EXPECT_EQ((number - x).to_vector<std::int64_t>(), (Whole{least + 1, least + 7, most - 2}));
  }
}

TEST(IntegerOps, SubtractTheLeastNumberExactly) { expect_the_least_number_subtracted(cpu); }
TEST_F(IntegerOpsOnGpu, SubtractTheLeastNumberExactly) {
  expect_the_least_number_subtracted(device);
}

/// Bounds count by value, also those that the dtype cannot hold.
void expect_any_bounds(Device device) {
  using Whole = std::vector<std::int64_t>;
  for (const DType dtype : {DType::u8, DType::i32, DType::i64}) {
    const Tensor x = tensor<std::int64_t>({3, 0, 200}).to(device).to(dtype);
    const Whole raised{3, 1, 200}, lowered{3, 0, 5}, same{3, 0, 200};
    EXPECT_EQ(clamp(x, 1, most).to_vector<std::int64_t>(), raised) << dtype;
    EXPECT_EQ(clamp(x, 1, 1e18).to_vector<std::int64_t>(), raised) << dtype;
    EXPECT_EQ(clamp(x, 1, 1e30).to_vector<std::int64_t>(), raised) << dtype;
    EXPECT_EQ(clamp_min(x, 1).to_vector<std::int64_t>(), raised) << dtype;
    EXPECT_EQ(clamp(x, least, 5).to_vector<std::int64_t>(), lowered) << dtype;
    EXPECT_EQ(clamp(x, least + 1, 5).to_vector<std::int64_t>(), lowered) << dtype;
    EXPECT_EQ(clamp(x, -1e30, 5).to_vector<std::int64_t>(), lowered) << dtype;
    EXPECT_EQ(clamp(x, least + 1, most).to_vector<std::int64_t>(), same) << dtype;
  }
}

TEST(IntegerOps, TakeBoundsThatTheyNeverReach) { expect_any_bounds(cpu); }
TEST_F(IntegerOpsOnGpu, TakeBoundsThatTheyNeverReach) { expect_any_bounds(device); }

TEST(IntegerOps, RefuseNumbersThatNoneOfTheirResultsCouldBe) {
  const Tensor narrow = ones({2}, DType::i32), bytes = ones({2}, DType::u8), wide = arange(2);
  const auto refuses = [&](const char* what, const std::function<Tensor()>& call) {
    EXPECT_THAT(refusal(call), HasSubstr(what));
  };
  refuses("clamp: dtype i32", [&] { return clamp(narrow, 3e9, 4e9); });
  refuses("clamp: dtype u8", [&] { return clamp_max(bytes, -1); });
  refuses("clamp: dtype u8", [&] { return clamp_min(bytes, 256); });
  refuses("clamp: dtype i64", [&] { return clamp_min(wide, 1e19); });
  refuses("add: dtype i64", [&] { return wide + 1e19; });
  refuses("sub: dtype i32", [&] { return narrow - 1e19; });
  refuses("mul: dtype u8", [&] { return bytes * -1e19; });
  refuses("add_: dtype i64",
          [&] { return Tensor(wide).add_(std::numeric_limits<double>::infinity()); });
  refuses("affine: dtype i64", [&] { return affine(wide, 1, ~std::uint64_t{0}); });
}

TEST(IntegerOps, QuotientsAreFloating) {
  const Tensor right = tensor<std::int64_t>({2, 0, -3}), all = tensor<std::int64_t>({3, 0, 2});
  const Tensor share = right / all;
  EXPECT_EQ(share.dtype(), DType::f32);
  EXPECT_FLOAT_EQ(share.to_vector<float>()[0], 2.0F / 3);
  EXPECT_TRUE(std::isnan(share.to_vector<float>()[1]));
  EXPECT_EQ((sum(right > 0) / sum(all > 0)).item(), 0.5);
  EXPECT_EQ((right / 4).to_vector<double>(), (right / full({}, 4, DType::i64)).to_vector<double>());
  EXPECT_EQ((6 / all).to_vector<double>()[0], 2.0);
  Tensor kept = right.clone();
  EXPECT_THROW(kept.div_(all), Unsupported);
}

TEST(IntegerOps, RefuseNumbersThatTheDTypeCannotHold) {
  const Tensor whole = zeros({2}, DType::i32), bytes = zeros({2}, DType::u8), every = whole == 0;
  const auto refuses = [&](const char* what, const std::function<Tensor()>& call) {
    EXPECT_THAT(refusal(call), HasSubstr(what));
  };
  refuses("whole", [&] { return Tensor(whole).fill_(2.9); });
  refuses("whole", [&] { return Tensor(whole).masked_fill_(every, 0.7); });
  refuses("255", [&] { return Tensor(bytes).masked_fill_(every, 300); });
  refuses("255", [&] { return masked_fill(bytes, every, 300); });
  refuses("whole", [&] { return full({2}, 2.5, DType::i64); });
  refuses("got 1e+19", [&] { return full({2}, 1e19, DType::i64); });
  refuses("i32", [&] { return full({2}, (std::int64_t{1} << 53) + 1, DType::i32); });
  refuses("whole", [&] { return clamp(whole, 0.5, 3); });
  EXPECT_EQ(sum(whole).item(), 0.0);
  EXPECT_EQ(sum(bytes).item(), 0.0);
}

TEST(OpNames, AreThoseOfTheCallInErrors) {
  const Tensor x = arange(6).reshape({2, 3}), past = tensor<std::int64_t>({7});
  const auto message = [](const std::function<Tensor()>& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message([&] { return index_select(x, 0, past); }),
              HasSubstr("index_select: index 7"));
  EXPECT_THAT(message([&] { return gather(x, 1, past.reshape({1, 1})); }), HasSubstr("gather or"));
  EXPECT_THAT(message([&] { return pow(x, 2.0); }), HasSubstr("pow: "));
  EXPECT_THAT(message([&] { return x.view({5}); }), HasSubstr("view: 6 elements"));
  EXPECT_THAT(message([&] { return max(x > 0); }), HasSubstr("max: dtype bool"));
  EXPECT_THAT(message([&] { return max(zeros({0}), 0).first; }), HasSubstr("max over"));
  EXPECT_THAT(message([&] { return sum(x, {0, 0}); }), HasSubstr("twice"));
  EXPECT_THAT(message([&] { return flip(x, {1, -1}); }), HasSubstr("twice"));
  const Tensor w = ones({2}).set_requires_grad();
  EXPECT_EQ(autograd::node_of(w - 0.1)->name(), "sub");
}

}  // namespace
}  // namespace lockstep::test
