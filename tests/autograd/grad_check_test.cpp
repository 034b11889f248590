#include "lockstep/autograd/grad_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/op_call.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/refusal.hpp"

namespace lockstep {
namespace {

using autograd::InputGradients;
using autograd::OpCall;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::refusal;

constexpr OpDescriptor scaled_op{.name = "scaled"};

/// x * y, whose gradient of y is off by a factor.
Tensor scaled(const Tensor& x_in, const Tensor& y_in, double factor) {
  const OpCall call(scaled_op, x_in, y_in);
  Tensor out = no_grad([&] { return call[0] * call[1]; });
  return call.record(out, [x = call[0].detach(), y = call[1].detach(), factor](
                              const Tensor& dy, InputGradients& inputs) {
    inputs.set(0, dy * y);
    inputs.set(1, dy * x * factor);
  });
}

Tensor input(const Shape& shape) { return rand(shape, DType::f64); }

TEST(GradCheck, PassesForARightBackward) {
  EXPECT_TRUE(grad_check([](const auto& in) { return scaled(in[0], in[1], 1.0); },
                         {input({2, 3}), input({2, 3})}));
  EXPECT_TRUE(grad_check([](const auto& in) { return sum(exp(in[0])); }, {input({})}));
  EXPECT_TRUE(grad_check([](const auto& in) { return in[0] * 2.0; }, {input({0, 3})}));
}

TEST(GradCheck, NamesInputAndElementOfAWrongBackward) {
  const GradCheckResult result =
      grad_check([](const auto& in) { return scaled(in[0], in[1], 1.001); },
                 {ones({2}, DType::f64), ones({2}, DType::f64)});
  EXPECT_FALSE(result);
  EXPECT_THAT(result.mismatch, AllOf(HasSubstr("input 1, element 0"), HasSubstr("backward gives")));
  EXPECT_TRUE(grad_check([](const auto& in) { return scaled(in[0], in[1], 1.001); },
                         {ones({2}, DType::f64), ones({2}, DType::f64)}, {.tolerance = 0.01}));
}

TEST(GradCheck, NoticesGradientsThatAreSwappedAndNan) {
  constexpr OpDescriptor descriptor{.name = "swapped"};
  const auto swapped = [&](const std::vector<Tensor>& in) {
    const OpCall call(descriptor, in[0]);
    return call.record(no_grad([&] { return call[0].clone(); }),
                       [](const Tensor& dy, InputGradients& dx) { dx.set(0, flip(dy, {0})); });
  };
  EXPECT_FALSE(grad_check(swapped, {input({4})}));
  const auto nan = [&](const std::vector<Tensor>& in) {
    const OpCall call(descriptor, in[0]);
    return call.record(
        no_grad([&] { return call[0].clone(); }),
        [](const Tensor& dy, InputGradients& dx) { dx.set(0, log(dy * 0.0 - 1.0)); });
  };
  EXPECT_FALSE(grad_check(nan, {input({4})}));
}

TEST(GradCheck, RestoresInputsAndPassesOthersThrough) {
  const Tensor x = input({3}), index = tensor<std::int64_t>({2, 0});
  const std::vector<double> before = x.to_vector<double>();
  EXPECT_TRUE(grad_check([](const auto& in) { return index_select(in[0], 0, in[1]); }, {x, index}));
  EXPECT_EQ(x.to_vector<double>(), before);
  EXPECT_FALSE(x.grad().defined());
}

TEST(GradCheck, RefusesWhatItCannotCheck) {
  const auto same = [](const std::vector<Tensor>& in) { return in[0] * 1.0; };
  EXPECT_THAT(refusal([&] { grad_check(same, {rand({2})}); }), HasSubstr("f64"));
  EXPECT_THAT(refusal([&] {
                grad_check(same, {input({2, 3}).transpose(0, 1)});
              }),
              HasSubstr("contiguous leaf"));
  EXPECT_THAT(
      refusal([&] { grad_check([](const auto& in) { return in[0].detach(); }, {input({2})}); }),
      HasSubstr("does not depend"));
  EXPECT_THAT(refusal([&] {
                grad_check([](const auto& in) { return in[0].to(DType::f32); }, {input({2})});
              }),
              HasSubstr("f32"));
}

}  // namespace
}  // namespace lockstep
