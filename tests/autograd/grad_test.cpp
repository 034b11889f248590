#include "lockstep/autograd/grad.hpp"

#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/amp/autocast.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/op_call.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/checkpoint.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/train/step_graph.hpp"

namespace lockstep::autograd {
namespace {

Tensor leaf(const Shape& shape) { return rand(shape, {DType::f64}).set_requires_grad(); }

void expect_near(const Tensor& actual, const Tensor& expected) {
  ASSERT_TRUE(actual.defined());
  ASSERT_EQ(actual.shape(), expected.shape());
  EXPECT_LE(max_abs_difference(actual, expected), 1e-12);
}

TEST(Grad, IsWhatBackwardLeaves) {
  const Tensor x = leaf({3, 4}), w = leaf({2, 4}), b = leaf({2});
  const Tensor loss = mean(square(tanh(linear(x, w, b))) + sum(x));
  const std::vector<Tensor> gradients = grad(loss, {x, w, b}, {.retain_graph = true});
  for (const Tensor& each : {x, w, b}) EXPECT_FALSE(each.grad().defined());
  EXPECT_TRUE(equal(grad(loss, {w}, {.retain_graph = true})[0], gradients[1]));
  loss.backward();
  expect_near(x.grad(), gradients[0]);
  expect_near(w.grad(), gradients[1]);
  expect_near(b.grad(), gradients[2]);
}

TEST(Grad, OfComputedTensorsLeavesTheGraphBehindThem) {
  const Tensor x = leaf({3}), h = exp(x), y = sum(h * h);
  const Tensor of_h = grad(y, {h})[0];
  expect_near(of_h, h * 2.0);
  h.backward(of_h);  // what lies before h was not run
  expect_near(x.grad(), h * h * 2.0);
  EXPECT_THROW(y.backward(), InvalidArgument);  // what lies behind it was, and is freed
}

TEST(Grad, GoesOnThroughAnInputToOthers) {
  const Tensor x = leaf({3}), h = exp(x), y = sum(square(h)) + sum(x);
  const std::vector<Tensor> both = grad(y, {h, x, h});
  expect_near(both[0], h * 2.0);
  expect_near(both[1], h * h * 2.0 + 1.0);
  EXPECT_TRUE(equal(both[2], both[0]));
}

TEST(Grad, OfAPartOfASplitIsItsOwn) {
  const Tensor x = leaf({2, 3});
  const std::vector<Tensor> parts = split(x, 1);
  const Tensor y = sum(parts[0] * 2.0) + sum(square(parts[1]));
  const std::vector<Tensor> gradients = grad(y, {parts[1], x});
  expect_near(gradients[0], parts[1] * 2.0);
  expect_near(gradients[1], cat({full_like(parts[0], 2), parts[1] * 2.0}));
}

TEST(Grad, AddsTheOutputsByTheirGradients) {
  const Tensor x = leaf({3}), a = x * 2.0, b = sum(square(x));
  const Tensor seed = tensor<double>({1, 2, 3});
  const std::vector<Tensor> outputs{a, b, x};
  const auto gradients = grad(outputs, {x}, {.grad_outputs = {seed, {}, ones({3}, {DType::f64})}});
  expect_near(gradients[0], seed * 2.0 + x * 2.0 + 1.0);
  const Tensor first = x[0];
  EXPECT_TRUE(equal(grad(first, {first})[0], ones({}, {DType::f64})));
}

TEST(Grad, LeavesOtherLeavesAndTheirHooksAlone) {
  const Tensor x = leaf({3}), w = leaf({3});
  int hooks = 0;
  leaf_of(w).add_hook([&](LeafNode&) { ++hooks; });
  leaf_of(x).add_hook([&](LeafNode&) { ++hooks; });
  w.register_hook([&](const Tensor&) { ++hooks; });
  const HookHandle doubles = x.register_hook([](const Tensor& dx) { return dx * 2.0; });
  const Tensor before = ones({3}, {DType::f64});
  Tensor(w).set_grad(before);
  expect_near(grad(sum(x * w), {x})[0], w * 2.0);
  EXPECT_EQ(hooks, 0);
  EXPECT_TRUE(equal(w.grad(), before));
  EXPECT_FALSE(x.grad().defined());
}

TEST(Grad, RefusesWhatHasNoGradientAndLosesNothing) {
  const Tensor x = leaf({3}), other = leaf({3}), y = sum(square(x));
  EXPECT_THROW(grad(y, {other}), InvalidArgument);
  EXPECT_FALSE(grad(y, {other}, {.retain_graph = true, .allow_unused = true})[0].defined());
  EXPECT_THROW(grad(y, {rand({3})}), InvalidArgument);
  EXPECT_THROW(grad(x * 2.0, {x}), InvalidArgument);
  EXPECT_THROW(grad(y, {x}, {.grad_outputs = {ones({2}, {DType::f64})}}), InvalidArgument);
  EXPECT_THROW(grad(y, {x}, {.grad_outputs = {{}, {}}}), InvalidArgument);
  EXPECT_THROW(grad(y, {Tensor()}), InvalidArgument);
  expect_near(grad(y, {x})[0], x * 2.0);
  EXPECT_THROW(grad(y, {x}), InvalidArgument);  // freed
}

TEST(Grad, RunsCheckpointedPartsAgain) {
  const Tensor x = leaf({3}), w = leaf({3});
  const Tensor y = sum(nn::checkpoint([&](const Tensor& z) { return exp(z * w); }, x));
  expect_near(grad(y, {x})[0], exp(x * w) * w);
  EXPECT_FALSE(w.grad().defined());
}

TEST(Grad, RunsInsideAnotherBackward) {
  const Tensor x = leaf({3}), z = leaf({3});
  Tensor inner;
  x.register_hook([&](const Tensor&) {
    const GradModeGuard recorded(true);
    inner = grad(sum(square(z)), {z})[0];
  });
  sum(x * 3.0).backward();
  expect_near(inner, z * 2.0);
}

TEST(Grad, LeavesTheGraphWholeToHooks) {
  const Tensor x = leaf({3}), y = leaf({3}), w = leaf({3});
  const Tensor h = x * y, loss = sum(h * w);
  std::vector<Tensor> seen;  // of backwards through the same graph, in the midst of it and behind
  const auto look = [&](const Tensor&) {
    const GradModeGuard recorded(true);
    if (seen.size() < 2)
      seen.push_back(grad(sum(w * w) + sum(x * y), {w, y}, {.retain_graph = true})[1]);
    if (seen.size() == 1) loss.backward({}, true);
  };
  x.register_hook(look);
  const std::vector<Tensor> gradients = grad(loss, {x, y}, {.retain_graph = true});
  expect_near(gradients[0], w * y);
  expect_near(gradients[1], w * x);
  ASSERT_EQ(seen.size(), 2u);
  for (const Tensor& each : seen) expect_near(each, x);
  expect_near(y.grad(), w * x);
  expect_near(w.grad(), h);
}

TEST(Grad, RunsHooksOfInputsAsBackwardDoes) {
  const Tensor x = rand({2, 2}).set_requires_grad();
  x.register_hook([](const Tensor& dx) { return matmul(dx, ones({2, 2})); });
  const amp::Autocast mixed(DType::bf16);
  EXPECT_EQ(grad(sum(x * 2.0), {x})[0].dtype(), DType::f32);
}

TEST(Grad, NamesAnInputThatGetsNone) {
  static constexpr OpDescriptor first_of{.name = "first_of"};
  const auto first = [](const Tensor& a, const Tensor& b) {
    const OpCall call(first_of, a, b);
    return call.record(no_grad([&] { return a.clone(); }),
                       [](const Tensor& dy, InputGradients& inputs) { inputs.set(0, dy); });
  };
  const Tensor a = leaf({3}), b = leaf({3});
  EXPECT_THROW(grad(sum(first(a, b)), {a, b}), InvalidArgument);
  const auto both = grad(sum(first(a, b)), {a, b}, {.allow_unused = true});
  EXPECT_TRUE(both[0].defined());
  EXPECT_FALSE(both[1].defined());
}

TEST(Grad, IsPartOfACapturedStep) {
  const Tensor x = leaf({3}), w = leaf({3});
  StepGraph graph(
      [&](std::span<const Tensor> inputs) { return grad(sum(square(x * inputs[0]) * w), {x}); });
  for (int i = 1; i < 8; ++i) {
    const Tensor scale = full({3}, i, {DType::f64});
    expect_near(graph({scale})[0], x * w * 2.0 * static_cast<double>(i * i));
  }
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
}

}  // namespace
}  // namespace lockstep::autograd
