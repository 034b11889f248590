#include "lockstep/amp/autocast.hpp"

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/op_call.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/autograd/saved_tensor.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/place.hpp"

namespace lockstep::amp {
namespace {

using ::testing::HasSubstr;

/// The dtype in which a product of f32 operands runs now.
DType product_dtype(Device device = cpu) {
  const Tensor x = ones({2, 2}, {DType::f32, device});
  return matmul(x, x).dtype();
}

TEST(Autocast, RunsProductsInItsDTypeUntilTheEndOfScope) {
  {
    const Autocast mixed(DType::bf16);
    EXPECT_EQ(product_dtype(), DType::bf16);
  }
  EXPECT_EQ(product_dtype(), DType::f32);
}

TEST(Autocast, NestsAndIsSwitchedOffInside) {
  const Autocast mixed(DType::bf16);
  {
    const Autocast off(DType::bf16, {.enabled = false});
    EXPECT_EQ(product_dtype(), DType::f32);
    {
      const Autocast other(DType::f16);
      EXPECT_EQ(product_dtype(), DType::f16);
    }
    EXPECT_EQ(product_dtype(), DType::f32);
  }
  EXPECT_EQ(product_dtype(), DType::bf16);
}

TEST(Autocast, ConcernsOneKindOfDeviceWhereOneIsGiven) {
  const Autocast mixed(DType::bf16, DeviceType::cuda);
  EXPECT_EQ(product_dtype(), DType::f32);
  const Autocast here(DType::f16, cpu);
  EXPECT_EQ(product_dtype(), DType::f16);
  const AutocastState state = AutocastState::current();
  EXPECT_EQ(state.dtype(cpu), DType::f16);
  EXPECT_EQ(state.dtype(cuda(1)), DType::bf16);
  const Autocast off(DType::bf16, cpu, {.enabled = false});
  EXPECT_FALSE(AutocastState::current().is_enabled(cpu));
  EXPECT_TRUE(AutocastState::current().is_enabled(cuda(0)));
}

TEST(Autocast, RefusesDTypesThatAreNoLowerPrecision) {
  try {
    const Autocast mixed(DType::f32);
    FAIL() << "f32 was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("amp::Autocast: dtype f32 is no lower precision"));
    EXPECT_THAT(error.what(), HasSubstr("bf16 or f16"));
  }
  EXPECT_THROW(const Autocast autocast(DType::i64, cpu), InvalidArgument);
  EXPECT_NO_THROW(const Autocast autocast(DType::f32, {.enabled = false}));
  EXPECT_FALSE(autograd::CastCacheScope::active()) << "a refused scope leaves nothing behind";
  EXPECT_EQ(product_dtype(), DType::f32);
}

TEST(Autocast, ConcernsTheCallingThreadAlone) {
  const Autocast mixed(DType::bf16);
  DType elsewhere = DType::i64;
  std::thread([&] { elsewhere = product_dtype(); }).join();
  EXPECT_EQ(elsewhere, DType::f32);
}

TEST(Autocast, IsCarriedToAnotherThreadByItsState) {
  const Autocast mixed(DType::bf16);
  DType elsewhere = DType::i64;
  std::thread([&, state = AutocastState::current()] {
    const Autocast same(state);
    elsewhere = product_dtype();
  }).join();
  EXPECT_EQ(elsewhere, DType::bf16);
}

constexpr OpDescriptor repeated_op{.name = "repeated"};

/// A product with tanh behind it that keeps its operands alone, and computes the rest again in
/// backward, as in the forward.
Tensor repeated(const Tensor& x_in, const Tensor& weight_in) {
  using namespace autograd;
  const OpCall call(repeated_op, x_in, weight_in);
  const auto forward = [](const Tensor& x, const Tensor& w) { return tanh(matmul(x, w)); };
  const Tensor y = no_grad([&] { return forward(call[0], call[1]); });
  return call.record(y, [forward, state = AutocastState::current(), x = SavedTensor(x_in),
                         w = SavedTensor(weight_in)](const Tensor& dy, InputGradients& inputs) {
    const Tensor a = x.get().detach().set_requires_grad();
    const Tensor b = w.get().detach().set_requires_grad();
    {
      const GradModeGuard recording(true);
      const Autocast same(state);
      forward(a, b).backward(dy);
    }
    inputs.set(0, a.grad());
    inputs.set(1, b.grad());
  });
}

class AutocastOn : public ::testing::TestWithParam<testing::Place> {
 protected:
  void SetUp() override {
    if (testing::is_missing(GetParam())) GTEST_SKIP() << "no CUDA device on this machine";
    place_.emplace(GetParam());
    manual_seed(3);
  }
  Device device() const { return GetParam().device; }
  Tensor leaf(const Shape& shape) const {
    return randn(shape, {DType::f32, device()}).set_requires_grad();
  }

 private:
  std::optional<testing::PlaceScope> place_;
};

TEST_P(AutocastOn, GivesRecomputationTheDTypesOfItsForward) {
  const Tensor x = leaf({6, 8}), weight = leaf({8, 5});
  std::vector<std::vector<float>> gradients;
  for (const bool again : {false, true}) {
    for (Tensor each : {x, weight}) each.set_grad({});
    Tensor y;
    {
      const Autocast mixed(DType::bf16);
      y = again ? repeated(x, weight) : tanh(matmul(x, weight));
    }
    EXPECT_EQ(y.dtype(), DType::bf16);
    sum(y).backward();
    gradients.push_back(weight.grad().to_vector<float>());
    gradients.push_back(x.grad().to_vector<float>());
  }
  EXPECT_EQ(gradients[0], gradients[2]);
  EXPECT_EQ(gradients[1], gradients[3]);
}

TEST_P(AutocastOn, RunsABackwardInsideTheScopeAsOneBehindIt) {
  const Tensor x = leaf({6, 8});
  Tensor weight = leaf({8, 5});
  std::vector<std::vector<float>> gradients;
  for (const bool inside : {false, true}) {
    weight.set_grad({});
    Tensor loss;
    {
      const Autocast mixed(DType::bf16);
      loss = mse_loss(matmul(x, weight), zeros({6, 5}, x.options()));
      if (inside) loss.backward();
    }
    if (!inside) loss.backward();
    gradients.push_back(weight.grad().to_vector<float>());
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST_P(AutocastOn, CastsTheMaskOfAnAttentionToo) {
  const Autocast mixed(DType::bf16);
  const Tensor q = leaf({1, 2, 4, 8}), mask = zeros({4, 4}, q.options());
  const Tensor plain = scaled_dot_product_attention(q, q, q);
  const Tensor masked = scaled_dot_product_attention(q, q, q, {.mask = mask});
  EXPECT_EQ(masked.dtype(), DType::bf16);
  EXPECT_EQ(masked.shape(), plain.shape());
}

TEST_P(AutocastOn, ComputesACrossEntropyInF32FromLogitsAsTheyAre) {
  const Tensor logits = leaf({6, 40}).detach().to(DType::bf16);
  const Tensor targets = arange(6).to(device());
  std::vector<std::vector<float>> results;
  for (const bool converted : {true, false}) {
    const Tensor x = logits.detach().set_requires_grad();
    const Autocast mixed(DType::bf16);
    const Tensor loss = cross_entropy(converted ? x.to(DType::f32) : x, targets);
    EXPECT_EQ(loss.dtype(), DType::f32);
    loss.backward();
    EXPECT_EQ(x.grad().dtype(), DType::bf16);
    results.push_back(loss.to_vector<float>());
    results.push_back(x.grad().to_vector<float>());
  }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
  const Autocast mixed(DType::bf16);
  EXPECT_EQ(cross_entropy(logits, targets, {.weight = ones({40}, leaf({1}).options())}).dtype(),
            DType::f32);
}

TEST_P(AutocastOn, ReturnsFromNormsForProductsWhatTheseWouldRoundItTo) {
  const Tensor x = leaf({6, 8}), scale = leaf({8}), shift = leaf({8});
  const Tensor dy = leaf({6, 8}).detach().to(DType::bf16);
  const auto norm = [&](bool centred, NormResult result) {
    return centred ? layer_norm(x, {8}, scale, shift, 1e-5, result)
                   : rms_norm(x, {8}, scale, 1e-5, result);
  };
  for (const bool centred : {true, false}) {
    EXPECT_EQ(norm(centred, NormResult::for_products).dtype(), DType::f32) << "outside a scope";
    std::vector<float> values[2];
    std::vector<Tensor> gradients[2];
    for (const bool directly : {false, true}) {
      for (Tensor each : {x, scale, shift}) each.set_grad({});
      const Autocast mixed(DType::bf16);
      const Tensor y = directly ? norm(centred, NormResult::for_products)
                                : norm(centred, NormResult::as_computed).to(DType::bf16);
      EXPECT_EQ(y.dtype(), DType::bf16);
      y.backward(dy);
      EXPECT_EQ(x.grad().dtype(), DType::f32);
      values[directly] = y.to_vector<float>();
      gradients[directly] = {x.grad(), scale.grad()};
    }
    EXPECT_EQ(values[0], values[1]) << centred;
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(allclose(gradients[1][i], gradients[0][i], 1e-5, 1e-5)) << centred << ' ' << i;
  }
}

TEST_P(AutocastOn, AddsALowerPrecisionToF32AsItReadsIt) {
  for (const DType lower : {DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{4, 24}, Shape{24}})
      for (const bool first : {true, false}) {
        const Tensor wide = leaf({4, 24}), narrow = leaf(shape).detach().to(lower);
        const auto sum_of = [&](const Tensor& other) {
          return first ? add(other, wide, 0.5) : add(wide, other, 0.5);
        };
        const Tensor other = narrow.detach().set_requires_grad();
        const Autocast mixed(DType::bf16);
        const Tensor y = sum_of(other), expected = sum_of(narrow.to(DType::f32));
        EXPECT_EQ(y.dtype(), DType::f32);
        EXPECT_EQ(y.to_vector<float>(), expected.to_vector<float>());
        sum(y).backward();
        EXPECT_EQ(wide.grad().dtype(), DType::f32);
        EXPECT_EQ(other.grad().dtype(), lower);
      }
  const Tensor a = leaf({3}), b = leaf({3}).detach().to(DType::bf16);
  EXPECT_THROW(add(a, b), InvalidArgument) << "outside a scope";
}

TEST_P(AutocastOn, TakesProbabilitiesOfAnotherDTypeThanTheLogits) {
  const Autocast mixed(DType::bf16);
  const Tensor logits = leaf({4, 3}).to(DType::bf16);
  const Tensor probabilities = softmax(leaf({4, 3}), 1);
  EXPECT_EQ(cross_entropy(logits, probabilities).dtype(), DType::f32);
}

INSTANTIATE_TEST_SUITE_P(Places, AutocastOn, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

}  // namespace
}  // namespace lockstep::amp
