#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/place.hpp"
#include "support/refusal.hpp"

// Ops that draw, and those that write where an index says, on every backend.

namespace lockstep::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Place;
using testing::refusal;

class OnEveryPlace : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    if (testing::is_missing(GetParam())) GTEST_SKIP() << "no CUDA device on this machine";
    scope_.emplace(GetParam());
  }
  Device device() const { return GetParam().device; }
  bool is_cpu() const { return device().is_cpu(); }
  template <class T>
  Tensor values(std::initializer_list<T> list) const {
    return tensor<T>(list).to(device());
  }

 private:
  std::optional<testing::PlaceScope> scope_;
};

class Multinomial : public OnEveryPlace {};

TEST_P(Multinomial, DrawsWithTheProbabilitiesOfTheWeights) {
  const Tensor weights = values<float>({1, 0, 3, 4, 2, 0}).reshape({2, 3});
  for (const bool replacement : {true, false}) {
    Generator generator(5);
    std::vector<double> counts(6);
    constexpr std::int64_t draws = 4000;
    for (int round = 0; round < (replacement ? 1 : 400); ++round) {
      const Tensor drawn = multinomial(weights, replacement ? draws : 1, replacement, generator);
      const auto found = drawn.to_vector<std::int64_t>();
      for (std::size_t i = 0; i < found.size(); ++i)
        counts[static_cast<std::size_t>(found[i]) + (i < found.size() / 2 ? 0 : 3)] += 1;
    }
    const double total = replacement ? draws : 400, margin = replacement ? 0.03 : 0.1;
    EXPECT_EQ(counts[1], 0);
    EXPECT_EQ(counts[5], 0);
    EXPECT_NEAR(counts[0] / total, 0.25, margin);
    EXPECT_NEAR(counts[3] / total, 4.0 / 6.0, margin);
  }
}

TEST_P(Multinomial, WithoutReplacementDrawsEachCategoryAtMostOnce) {
  Generator generator(3);
  const Tensor weights = rand({20, 9}, device()) + 0.01;
  const Tensor drawn = multinomial(weights, 9, false, generator);
  EXPECT_EQ(drawn.dtype(), DType::i64);
  const Tensor sorted = sort(drawn).first;
  EXPECT_TRUE(equal(sorted, arange(9).to(device()).expand({20, 9}).contiguous()));
}

TEST_P(Multinomial, DrawsTheSameForOneSeed) {
  const Tensor weights = (arange(50).to(DType::f32) + 1.0).to(device());
  for (const bool replacement : {true, false}) {
    Generator a(9), b(9), on_cpu(9);
    const auto first = multinomial(weights, 20, replacement, a).to_vector<std::int64_t>();
    EXPECT_EQ(first, multinomial(weights, 20, replacement, b).to_vector<std::int64_t>());
    EXPECT_EQ(first,
              multinomial(weights.to(cpu), 20, replacement, on_cpu).to_vector<std::int64_t>());
    EXPECT_NE(first, multinomial(weights, 20, replacement, a).to_vector<std::int64_t>());
  }
}

TEST_P(Multinomial, TakesHalfPrecisionAndOneDimension) {
  const Tensor weights = values<float>({0, 1, 0}).to(DType::bf16);
  EXPECT_THAT(multinomial(weights, 3, true).to_vector<std::int64_t>(), ElementsAre(1, 1, 1));
  EXPECT_THAT(multinomial(weights, 1).to_vector<std::int64_t>(), ElementsAre(1));
}

TEST_P(Multinomial, RefusesWhatCannotBeDrawnFrom) {
  const Tensor weights = values<float>({1, 2});
  EXPECT_THAT(refusal([&] { multinomial(weights, 0); }), HasSubstr("0 draws"));
  EXPECT_THAT(refusal([&] { multinomial(weights, 3); }), HasSubstr("from 2 categories"));
  EXPECT_THAT(refusal([&] { multinomial(weights.reshape({1, 1, 2}), 1); }), HasSubstr("[1, 1, 2]"));
  EXPECT_THROW(multinomial(values<std::int64_t>({1, 2}), 1), Unsupported);
  if (!is_cpu()) return;
  EXPECT_THAT(refusal([&] { multinomial(values<float>({1, -1}), 1); }), HasSubstr("negative"));
  EXPECT_THAT(refusal([&] { multinomial(values<float>({1, NAN}), 1); }), HasSubstr("NaN"));
  EXPECT_THAT(refusal([&] { multinomial(values<float>({0, 0}), 1, true); }), HasSubstr("above 0"));
  EXPECT_THAT(refusal([&] { multinomial(values<float>({0, 2}), 2); }), HasSubstr("fewer than 2"));
  EXPECT_THAT(refusal([&] { multinomial(full({3}, 1e308, DType::f64), 5, true); }),
              HasSubstr("add up"));
}

INSTANTIATE_TEST_SUITE_P(Backends, Multinomial, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

class WholeNumbers : public OnEveryPlace {
 protected:
  /// Smallest and largest of many draws.
  std::vector<std::int64_t> range(std::int64_t low, std::int64_t high, DType dtype) const {
    Generator generator(1);
    const Tensor drawn = randint(low, high, {20000}, {dtype, device()}, generator).to(DType::i64);
    return {amin(drawn).item<std::int64_t>(), amax(drawn).item<std::int64_t>()};
  }
};

TEST_P(WholeNumbers, AreDrawnFromTheWholeRangeAndNothingElse) {
  const std::int64_t p53 = std::int64_t{1} << 53, p60 = std::int64_t{1} << 60;
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t low : {p53, p60 + 1, p60, least, most - 599, std::int64_t{-300}})
    for (const std::int64_t count : {3, 100, 599})
      EXPECT_THAT(range(low, low + count, DType::i64), ElementsAre(low, low + count - 1));
  EXPECT_THAT(range(0, 256, DType::u8), ElementsAre(0, 255));
  EXPECT_THAT(range(0, 2, DType::boolean), ElementsAre(0, 1));
  EXPECT_THAT(range(-256, 257, DType::bf16), ElementsAre(-256, 256));
  EXPECT_THAT(range(1900, 2049, DType::f16), ElementsAre(1900, 2048));
  EXPECT_THAT(range((1 << 24) - 9, (1 << 24) + 1, DType::f32), ElementsAre((1 << 24) - 9, 1 << 24));
  EXPECT_THAT(range(p53 - 9, p53 + 1, DType::f64), ElementsAre(p53 - 9, p53));
}

TEST_P(WholeNumbers, OutsideOfTheDtypeAreRefused) {
  const auto refused = [&](std::int64_t low, std::int64_t high, DType dtype) {
    return refusal([&] { randint(low, high, {2}, {dtype, device()}); });
  };
  EXPECT_THAT(refused(290, 300, DType::u8), HasSubstr("randint: dtype u8"));
  EXPECT_THAT(refused(0, 257, DType::u8), HasSubstr("randint: dtype u8"));
  EXPECT_THAT(refused(-1, 2, DType::u8), HasSubstr("randint: dtype u8"));
  EXPECT_THAT(refused(0, 3, DType::boolean), HasSubstr("randint: dtype bool"));
  EXPECT_THAT(refused(0, 1000, DType::bf16), HasSubstr("randint: dtype bf16"));
  EXPECT_THAT(refused(-2049, 0, DType::f16), HasSubstr("up to 2048"));
  EXPECT_THAT(refused((1 << 25) - 4, 1 << 25, DType::f32), HasSubstr("randint: dtype f32"));
  EXPECT_THAT(refused(0, 0, DType::i64), HasSubstr("must hold"));
  EXPECT_THAT(refused(3, -3, DType::i64), HasSubstr("must hold"));
  EXPECT_THAT(refused(0, (std::int64_t{1} << 48) + 1, DType::i64), HasSubstr("2^48"));
  EXPECT_THAT(refused(std::numeric_limits<std::int64_t>::min(),
                      std::numeric_limits<std::int64_t>::max(), DType::i64),
              HasSubstr("2^48"));
}

INSTANTIATE_TEST_SUITE_P(Backends, WholeNumbers, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

class Indexing : public OnEveryPlace {};

TEST_P(Indexing, ScatterAddSumsManyHalfPrecisionTermsExactly) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor x = zeros({2}, {dtype, device()}), ones_ = ones({1000}, {dtype, device()});
    const Tensor index = zeros({1000}, {DType::i64, device()});
    EXPECT_THAT(scatter_add(x, 0, index, ones_).to_vector<double>(), ElementsAre(1000, 0));
    EXPECT_EQ(scatter_add(x, 0, index, ones_).dtype(), dtype);
    EXPECT_THAT(index_add(x, 0, index, ones_, 0.5).to_vector<double>(), ElementsAre(500, 0));
  }
}

TEST_P(Indexing, ScatterKeepsTheLastOfSeveral) {
  const Tensor index = zeros({3}, {DType::i64, device()});
  for (const DType dtype : {DType::f32, DType::bf16, DType::u8, DType::i64}) {
    const Tensor source = arange(3, {dtype, device()}) + 5;
    EXPECT_THAT(
        scatter(zeros({2}, source.options()), 0, index, source).to(DType::f64).to_vector<double>(),
        ElementsAre(7, 0));
    // Along an index that is one number, too.
    EXPECT_THAT(scatter(zeros({2}, source.options()), 0, index.slice(0, 0, 1).expand({3}), source)
                    .to(DType::f64)
                    .to_vector<double>(),
                ElementsAre(7, 0));
  }
  const Tensor truth = scatter(zeros({2}, {DType::boolean, device()}), 0, index,
                               ones({3}, {DType::boolean, device()}));
  EXPECT_TRUE(equal(truth, tensor({1, 0}).to(device()) > 0));
}

TEST_P(Indexing, ChoosesCategoriesAsOftenAsTheyAreLikely) {
  manual_seed(5);
  const Tensor logits = log(tensor<float>({0.5F, 0.3F, 0.2F})).to(device()).expand({20000, 3});
  const Tensor hard = gumbel_softmax(logits, 0.5, true);
  EXPECT_TRUE(allclose(sum(hard, 1), ones({20000}, hard.options())));
  const auto shares = mean(hard, 0).to(cpu).to_vector<float>();
  EXPECT_NEAR(shares[0], 0.5, 0.02);
  EXPECT_NEAR(shares[1], 0.3, 0.02);
  Tensor leaf = zeros({4, 3}, {DType::f32, device()}).set_requires_grad();
  manual_seed(6);
  const Tensor soft = gumbel_softmax(leaf, 2.0);
  sum(square(soft)).backward();
  const Tensor of_soft = leaf.grad().clone();
  leaf.set_grad({});
  manual_seed(6);
  sum(gumbel_softmax(leaf, 2.0, true) * (2.0 * soft.detach())).backward();
  EXPECT_TRUE(allclose(leaf.grad(), of_soft));  // what is hard has the gradient of what is soft
  EXPECT_THAT(refusal([&] { gumbel_softmax(leaf, 0); }), HasSubstr("above 0"));
}

TEST_P(Indexing, IndexAddMultipliesBytesToo) {
  const TensorOptions bytes{DType::u8, device()};
  const Tensor x = full({2}, 3, bytes), source = full({3}, 5, bytes);
  const Tensor index = zeros({3}, {DType::i64, device()});
  EXPECT_THAT(index_add(x, 0, index, source, 2).to_vector<std::uint8_t>(), ElementsAre(33, 3));
}

TEST_P(Indexing, ScatterAddTakesEmptyIndicesAndRefusesWhatDoesNotFit) {
  const Tensor x = rand({2, 3}, device());
  const TensorOptions of_index{DType::i64, device()};
  EXPECT_TRUE(equal(scatter_add(x, 1, zeros({2, 0}, of_index), zeros({2, 0}, device())), x));
  EXPECT_EQ(scatter_add(x, 1, zeros({0, 3}, of_index), x).shape(), x.shape());
  const Tensor index = zeros({2, 3}, of_index);
  EXPECT_THAT(refusal([&] { scatter_add(x, 0, index, x[0]); }), HasSubstr("[2, 3]"));
  EXPECT_THAT(refusal([&] {
                scatter_add(x, 0, zeros({2, 4}, of_index), zeros({2, 4}, device()));
              }),
              HasSubstr("scatter_add"));
  EXPECT_THAT(refusal([&] { index_add(x, 0, index, x); }), HasSubstr("index_add"));
  EXPECT_THAT(refusal([&] { scatter_add(x, 0, index, x.to(DType::f64)); }), HasSubstr("f64"));
  if (is_cpu()) {
    EXPECT_THAT(refusal([&] { scatter_add(x, 0, index + 2, x); }), HasSubstr("outside [0, 2)"));
    const Tensor rows = full({2}, 2, index.options());
    EXPECT_THAT(refusal([&] { index_add(x, 0, rows, x); }), HasSubstr("index_add: index 2"));
    EXPECT_THAT(refusal([&] { scatter(x, 0, index + 2, x); }), HasSubstr("scatter: index 2"));
    EXPECT_THAT(refusal([&] { scatter(x, 0, index + 2, 1); }), HasSubstr("scatter: index 2"));
    EXPECT_THAT(refusal([&] { scatter_add(x, 0, index - 1, x); }), HasSubstr("-1"));
  }
}

TEST_P(Indexing, OneHotMarksEachIndex) {
  const Tensor index = values<std::int64_t>({2, 0});
  EXPECT_THAT(one_hot(index).to_vector<std::int64_t>(), ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_EQ(one_hot(index, 5).shape(), (Shape{2, 5}));
  EXPECT_EQ(one_hot(index).dtype(), DType::i64);
  EXPECT_EQ(one_hot(values<std::int64_t>({}), 4).shape(), (Shape{0, 4}));
  EXPECT_THAT(refusal([&] { one_hot(values<std::int64_t>({})); }), HasSubstr("number"));
  if (!is_cpu()) return;
  EXPECT_THAT(refusal([&] { one_hot(index, 2); }), HasSubstr("not all in [0, 2)"));
  EXPECT_THAT(refusal([&] { one_hot(index - 1); }), HasSubstr("-1"));
}

TEST_P(Indexing, MaskedFillRefusesFractionsForIntegers) {
  const Tensor x = values<std::int64_t>({1, 2}), mask = x > 1.0;
  EXPECT_THAT(masked_fill(x, mask, -7).to_vector<std::int64_t>(), ElementsAre(1, -7));
  EXPECT_THAT(refusal([&] { masked_fill(x, mask, 0.5); }), HasSubstr("whole numbers"));
  EXPECT_THAT(refusal([&] { masked_fill(x, mask, x); }), HasSubstr("no dimensions"));
}

TEST_P(Indexing, ExtremesAndSortingPutNanFirstAmongTheLargest) {
  const Tensor x = values<float>({1, NAN, 3});
  EXPECT_EQ(max(x, 0).second.item<std::int64_t>(), 1);
  EXPECT_EQ(min(x, 0).second.item<std::int64_t>(), 1);
  EXPECT_THAT(argsort(x).to_vector<std::int64_t>(), ElementsAre(0, 2, 1));
  EXPECT_THAT(argsort(x, 0, true).to_vector<std::int64_t>(), ElementsAre(1, 2, 0));
  EXPECT_TRUE(std::isnan(prod(x).item()));
}

TEST_P(Indexing, EinsumRefusesWhatDoesNotFit) {
  const Tensor a = rand({2, 3}, device()), b = rand({4, 5}, device());
  EXPECT_THAT(refusal([&] { einsum("ij,jk->ik", {a, b}); }), HasSubstr("3 and 4"));
  EXPECT_THAT(refusal([&] { einsum("ij->ij", {a, b}); }), HasSubstr("1 operands, got 2"));
  EXPECT_THAT(refusal([&] { einsum("ijk->i", {a}); }), HasSubstr("[2, 3]"));
  EXPECT_THAT(refusal([&] { einsum("ij->ik", {a}); }), HasSubstr("result"));
  EXPECT_THAT(refusal([&] { einsum("ij->ii", {a}); }), HasSubstr("once"));
  EXPECT_THAT(refusal([&] { einsum("i1->i", {a}); }), HasSubstr("'1'"));
  EXPECT_THAT(refusal([&] { einsum("ii->i", {a}); }), HasSubstr("2 and 3"));
  EXPECT_THAT(refusal([&] { einsum("......->", {a}); }), HasSubstr("two ellipses"));
  EXPECT_THAT(refusal([&] { einsum("", {}); }), HasSubstr("no operands"));
}

INSTANTIATE_TEST_SUITE_P(Backends, Indexing, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

}  // namespace
}  // namespace lockstep::test
