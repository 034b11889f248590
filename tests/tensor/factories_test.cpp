#include "lockstep/tensor/factories.hpp"

#include <iomanip>
#include <limits>
#include <numeric>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/compare.hpp"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Factories, FillEveryDtype) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32,
                            DType::u8, DType::boolean}) {
    const Tensor x = ones({2, 2}, {.dtype = dtype});
    EXPECT_EQ(x.dtype(), dtype);
    EXPECT_EQ(x.nbytes(), 4 * size_of(dtype));
    EXPECT_THAT(x.to_vector<double>(), ElementsAre(1, 1, 1, 1)) << dtype;
    EXPECT_THAT(zeros_like(x).to_vector<double>(), ElementsAre(0, 0, 0, 0)) << dtype;
  }
}

TEST(Factories, RefuseBadShapes) {
  EXPECT_THROW(empty({2, -1}), InvalidArgument);
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_THROW(empty({huge, huge}), InvalidArgument);
  EXPECT_THROW(empty({huge, std::int64_t{1} << 22}, {.dtype = DType::f64}), InvalidArgument);
  EXPECT_THROW(empty({std::int64_t{1} << 50}), OutOfMemory);
}

TEST(Factories, RefuseStridesThatAreNotDense) {
  EXPECT_TRUE(empty_strided({2, 3}, {1, 2}).transpose(0, 1).is_contiguous());
  EXPECT_EQ(empty_strided({2, 1, 3}, {3, 77, 1}).numel(), 6);
  EXPECT_THROW(empty_strided({2, 3}, {4, 1}), InvalidArgument);
  EXPECT_THROW(empty_strided({2, 3}, {0, 1}), InvalidArgument);
  EXPECT_THROW(empty_strided({2, 3}, {3}), InvalidArgument);
}

TEST(Factories, MakeEmptyTensors) {
  const Tensor nothing = zeros({0, 3});
  EXPECT_EQ(nothing.numel(), 0);
  EXPECT_TRUE(nothing.to_vector<float>().empty());
  EXPECT_EQ(sum(nothing).item(), 0.0);
  EXPECT_EQ((nothing + nothing).shape(), (Shape{0, 3}));
}

TEST(Factories, CountInSteps) {
  EXPECT_THAT(arange(4).to_vector<std::int64_t>(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(arange(4).dtype(), DType::i64);
  EXPECT_THAT(arange(1.0, 2.0, 0.25, {}).to_vector<float>(), ElementsAre(1, 1.25, 1.5, 1.75));
  EXPECT_THAT(arange(3.0, 0.0, -1.0, {}).to_vector<float>(), ElementsAre(3, 2, 1));
  EXPECT_EQ(arange(2.0, 2.0, 1.0, {}).numel(), 0);
  EXPECT_THROW(arange(2.0, 1.0, 1.0, {}), InvalidArgument);
  EXPECT_THROW(arange(-3), InvalidArgument);
  EXPECT_THROW(arange(0.0, 1.0, 0.0, {}), InvalidArgument);
}

TEST(Factories, CopyHostValues) {
  std::vector<float> values{1, 2, 3, 4, 5, 6};
  const Tensor x = from_span<float>(values, {2, 3});
  values[0] = 99;
  EXPECT_THAT(x.select(1, 0).to_vector<float>(), ElementsAre(1, 4));
  EXPECT_THROW(from_span<float>(values, {2, 2}), InvalidArgument);
  EXPECT_EQ(tensor<bool>({true, false}).dtype(), DType::boolean);
  EXPECT_EQ(tensor(std::vector<std::int32_t>{7, 8}).shape(), (Shape{2}));
}

TEST(FromBlob, SharesTheCallersMemory) {
  float memory[4] = {1, 2, 3, 4};
  Tensor x = from_blob(memory, {2, 2});
  memory[3] = 40;
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(1, 2, 3, 40));
  x.fill_(5.0);
  EXPECT_EQ(memory[0], 5.0f);
}

struct Owner final : RefCounted {
  explicit Owner(bool& is_gone) : gone(is_gone) {}
  ~Owner() override { gone = true; }
  bool& gone;
  float memory[2] = {3, 4};
};

TEST(FromBlob, RefusesAnAddressThatIsNotAligned) {
  alignas(8) char memory[64] = {};
  EXPECT_EQ(from_blob(memory + 1, {4}, {DType::u8}).numel(), 4);
  EXPECT_EQ(from_blob(memory + 2, {4}, {DType::bf16}).numel(), 4);
  EXPECT_THROW(from_blob(memory + 1, {4}, {DType::bf16}), InvalidArgument);
  EXPECT_THROW(from_blob(memory + 4, {4}, {DType::f64}), InvalidArgument);
}

TEST(FromBlob, KeepsTheOwnerAliveUntilTheLastView) {
  bool gone = false;
  Tensor view;
  {
    auto owner = make_intrusive<Owner>(gone);
    float* memory = owner->memory;
    view = from_blob(memory, {2}, {}, std::move(owner)).slice(0, 1, 2);
  }
  EXPECT_FALSE(gone);
  EXPECT_EQ(view.item(), 4.0);
  view = Tensor();
  EXPECT_TRUE(gone);
}

TEST(Random, RepeatsAfterSeeding) {
  manual_seed(7);
  const Tensor uniform = rand({100}), normal = randn({101});
  EXPECT_FALSE(equal(uniform, rand({100})));
  manual_seed(7);
  EXPECT_TRUE(equal(uniform, rand({100})));
  EXPECT_TRUE(equal(normal, randn({101})));
  manual_seed(8);
  EXPECT_FALSE(equal(uniform, rand({100})));
}

TEST(Random, DrawsFromAGivenGeneratorWithoutTouchingTheDefaultOne) {
  Generator a(3), b(3);
  const auto before = default_generator().state();
  EXPECT_TRUE(equal(rand({10}, {}, a), rand({10}, {}, b)));
  EXPECT_EQ(default_generator().state().offset, before.offset);
  const auto place = a.state();
  const Tensor next = randn({10}, {}, a);
  a.set_state(place);
  EXPECT_TRUE(equal(next, randn({10}, {}, a)));
}

TEST(Random, HasTheMomentsOfItsDistribution) {
  manual_seed(1);
  const Tensor uniform = rand({100000}, {.dtype = DType::f64});
  EXPECT_NEAR(mean(uniform).item(), 0.5, 0.005);
  EXPECT_NEAR(var(uniform).item(), 1.0 / 12, 0.002);
  EXPECT_GE(amin(uniform).item(), 0.0);
  EXPECT_LT(amax(uniform).item(), 1.0);
  const Tensor normal = randn({100000}, {.dtype = DType::f64});
  EXPECT_NEAR(mean(normal).item(), 0.0, 0.02);
  EXPECT_NEAR(var(normal).item(), 1.0, 0.02);
}

TEST(Random, RefusesIntegers) { EXPECT_THROW(rand({2}, {.dtype = DType::i64}), Unsupported); }

std::string printed(const Tensor& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

TEST(Print, ShowsValuesShapeDtypeAndDevice) {
  EXPECT_EQ(printed(tensor<float>({1, 2.5f})), "[1, 2.5]\n(f32 [2] on cpu)");
  EXPECT_EQ(printed(Tensor()), "tensor(undefined)");
  EXPECT_EQ(printed(scalar(3)), "3\n(f32 [] on cpu)");
  EXPECT_EQ(printed(arange(4).reshape({2, 2})), "[[0, 1],\n [2, 3]]\n(i64 [2, 2] on cpu)");
}

TEST(Print, ShowsAsManyDigitsAsTheStreamIsAskedFor) {
  std::ostringstream out;
  out << tensor<double>({1.0 / 3}) << std::setprecision(9) << tensor<double>({1.0 / 3});
  EXPECT_THAT(out.str(), HasSubstr("[0.3333]"));
  EXPECT_THAT(out.str(), HasSubstr("[0.333333333]"));
}

TEST(Print, ShortensLongDimensions) {
  EXPECT_EQ(printed(arange(100)), "[0, 1, 2, ..., 97, 98, 99]\n(i64 [100] on cpu)");
}

TEST(Print, ShowsIntegersInFull) {
  const std::int64_t large = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(printed(tensor<std::int64_t>({123456789, large})),
              HasSubstr("[123456789, 9223372036854775807]"));
}

TEST(Print, LeavesTheStreamsFormatAlone) {
  std::ostringstream out;
  out << tensor<float>({1.0f / 3}) << 1.0 / 3;
  EXPECT_THAT(out.str(), HasSubstr("0.333333"));
  EXPECT_THAT(out.str(), HasSubstr("[0.3333]"));
}

TEST(Compare, EqualWantsShapeDtypeAndValues) {
  const Tensor x = tensor<float>({1, 2});
  EXPECT_TRUE(equal(x, x.clone()));
  EXPECT_FALSE(equal(x, x.to(DType::f64)));
  EXPECT_FALSE(equal(x, x.reshape({1, 2})));
  const Tensor nan = full({1}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(equal(nan, nan));
}

TEST(Compare, AllcloseIsRelativeToTheSecond) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(allclose(full({1}, 1.0), full({1}, 1.0 + 1e-6)));
  EXPECT_FALSE(allclose(full({1}, 1.0), full({1}, 1.1)));
  EXPECT_TRUE(allclose(full({1}, 1.0), full({1}, 1.1), 0.1));
  EXPECT_TRUE(allclose(full({1}, infinity), full({1}, infinity)));
  EXPECT_FALSE(allclose(full({1}, infinity), full({1}, -infinity)));
  EXPECT_FALSE(allclose(full({1}, 0.0), full({1}, 0.1)));
  EXPECT_FALSE(allclose(full({1}, std::nan("")), full({1}, std::nan(""))));
}

TEST(Compare, FindsTheLargestDifference) {
  EXPECT_EQ(max_abs_difference(tensor<double>({1, 5}), tensor<double>({2, 3})), 2.0);
  EXPECT_TRUE(std::isnan(max_abs_difference(tensor<double>({1}), full({1}, std::nan("")))));
  EXPECT_THROW(max_abs_difference(zeros({1}), zeros({2})), InvalidArgument);
}

TEST(Compare, DistinguishesLargeIntegers) {
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  EXPECT_FALSE(equal(tensor<std::int64_t>({large}), tensor<std::int64_t>({large - 1})));
}

}  // namespace
}  // namespace lockstep
