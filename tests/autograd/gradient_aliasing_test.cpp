#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/fixed_sink.hpp"
#include "autograd/leaves.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/op_call.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"

// A backward that reads, as an operand or as what it starts from, the gradient to which it adds.

namespace lockstep {
namespace {

using testing::f64;

/// A leaf that has a gradient, in memory of its own or of a sink, and a second leaf.
struct Leaves {
  explicit Leaves(bool sunk, const Shape& shape = {60, 60}) : memory(zeros(shape, f64)) {
    Generator generator(3);
    w = randn(shape, f64, generator).set_requires_grad();
    v = randn(shape, f64, generator).set_requires_grad();
    if (sunk) sink = std::make_unique<testing::FixedSink>(w, memory);
    sum(square(w)).backward();
  }
  Tensor memory, w, v;
  std::unique_ptr<testing::FixedSink> sink;
};

/// What a backward that may be given the live gradient, or else a copy of it, leaves in both
/// leaves.
using Case = std::function<void(const Leaves&, const Tensor& gradient)>;

void expect_the_same_of_a_copy(const Case& run, const Shape& shape = {60, 60}) {
  for (const bool sunk : {false, true}) {
    const Leaves live(sunk, shape), copied(sunk, shape);
    run(live, live.w.grad());
    run(copied, copied.w.grad().clone());
    EXPECT_TRUE(allclose(live.w.grad(), copied.w.grad(), 1e-12, 1e-12)) << sunk;
    ASSERT_EQ(live.v.grad().defined(), copied.v.grad().defined());
    if (!live.v.grad().defined()) continue;
    EXPECT_TRUE(allclose(live.v.grad(), copied.v.grad(), 1e-12, 1e-12)) << sunk;
  }
}

// What comes back to the parts of a tensor may lie side by side already.
TEST(GradientAliasing, PartsOfOneGradientComeTogetherWithoutACopy) {
  const Tensor x = ones({2, 3, 18}, f64).set_requires_grad();
  const Tensor product = x * 2;
  Tensor whole;
  product.register_hook([&](const Tensor& gradient) { whole = gradient; });
  const auto parts = split(product, {8, 4, 6}, 2);
  const void* memory = nullptr;
  parts[0].register_hook([&](const Tensor& gradient) { memory = gradient.data_ptr(); });
  const auto heads = [&](std::size_t i, std::int64_t count) {
    return parts[i].reshape({2, 3, count, -1}).transpose(1, 2);
  };
  scaled_dot_product_attention(heads(0, 4), heads(1, 2), heads(2, 2))
      .backward(ones({2, 4, 3, 3}, f64));
  ASSERT_TRUE(whole.defined());
  EXPECT_EQ(whole.data_ptr(), memory);
  EXPECT_TRUE(whole.is_contiguous());
}

TEST(GradientAliasing, PartsThatComeBackAsTheyWereLeaveTheGradientTheyCameFromAlone) {
  const Tensor x = ones({4, 6}, f64).set_requires_grad();
  const Tensor dy = full({4, 6}, 3.0, f64);
  for (const double times : {1.0, 2.0}) {
    const auto parts = split(x, {2, 4}, 1);
    cat(parts, 1).backward(dy);
    EXPECT_TRUE(allclose(x.grad(), full({4, 6}, 3.0 * times, f64)));
    EXPECT_TRUE(allclose(dy, full({4, 6}, 3.0, f64)));
  }
}

TEST(GradientAliasing, ProductsMayStartFromTheGradientTheyAddTo) {
  expect_the_same_of_a_copy([](const Leaves& leaves, const Tensor& gradient) {
    matmul(leaves.w, leaves.v.detach()).backward(gradient);
  });
  expect_the_same_of_a_copy([](const Leaves& leaves, const Tensor& gradient) {
    matmul(leaves.w, leaves.v).backward(gradient);
  });
  expect_the_same_of_a_copy([](const Leaves& leaves, const Tensor& gradient) {
    matmul(leaves.v, leaves.w).backward(gradient.transpose(0, 1));
  });
}

TEST(GradientAliasing, ProductsMayHaveTheGradientTheyAddToAsAnOperand) {
  expect_the_same_of_a_copy([](const Leaves& leaves, const Tensor& gradient) {
    sum(square(linear(gradient, leaves.w))).backward();
  });
  expect_the_same_of_a_copy([](const Leaves& leaves, const Tensor& gradient) {
    sum(square(matmul(leaves.w, gradient.transpose(0, 1)))).backward();
  });
}

TEST(GradientAliasing, OtherOpsMayDoSoToo) {
  expect_the_same_of_a_copy([](const Leaves& leaves, const Tensor& gradient) {
    (leaves.w * leaves.v).backward(gradient);
  });
  expect_the_same_of_a_copy([](const Leaves& leaves, const Tensor& gradient) {
    (leaves.w + tanh(leaves.v)).backward(gradient);
  });
  expect_the_same_of_a_copy([](const Leaves& leaves, const Tensor& gradient) {
    leaves.w.transpose(0, 1).backward(gradient);
  });
}

TEST(GradientAliasing, ConvolutionsKeepTheMemoryOrderOfWhatTheySaved) {
  expect_the_same_of_a_copy(
      [](const Leaves& leaves, const Tensor& gradient) {
        const Tensor x = gradient.transpose(1, 3).transpose(2, 3);  // channels-last
        sum(square(conv2d(x.reshape({2, 6, 4, 4}), leaves.w.reshape({2, 6, 4, 4})))).backward();
      },
      {2, 4, 4, 6});
}

TEST(GradientAliasing, AGradientMayBeUsedAfterItWasCleared) {
  for (const bool sunk : {false, true}) {
    const Leaves live(sunk), copied(sunk);
    for (const Leaves* leaves : {&live, &copied}) {
      const Tensor kept = leaves == &live ? leaves->w.grad() : leaves->w.grad().clone();
      Tensor(leaves->w).set_grad({});
      matmul(leaves->w, leaves->v).backward(kept);
    }
    EXPECT_TRUE(allclose(live.w.grad(), copied.w.grad(), 1e-12, 1e-12)) << sunk;
    EXPECT_TRUE(allclose(live.v.grad(), copied.v.grad(), 1e-12, 1e-12)) << sunk;
  }
}

TEST(GradientAliasing, AHookMayReturnTheGradientThatIsAddedTo) {
  expect_the_same_of_a_copy([](const Leaves& leaves, const Tensor& gradient) {
    const Tensor y = matmul(leaves.w, leaves.v);
    y.register_hook([&](const Tensor&) { return gradient; });
    sum(y).backward();
  });
  expect_the_same_of_a_copy([](const Leaves& leaves, const Tensor& gradient) {
    leaves.w.register_hook([&](const Tensor&) { return gradient.transpose(0, 1); });
    sum(leaves.w).backward();
  });
}

/// x, whose gradient is `gradient` whatever reaches it.
Tensor with_gradient(const Tensor& x, const Tensor& gradient) {
  static constexpr OpDescriptor op{.name = "with_gradient"};
  const autograd::OpCall call(op, x);
  return call.record(call[0], [gradient](const Tensor&, autograd::InputGradients& inputs) {
    inputs.set(0, gradient);
  });
}

TEST(GradientAliasing, AnOpMayHandOnTheGradientThatIsAddedTo) {
  expect_the_same_of_a_copy([](const Leaves& leaves, const Tensor& gradient) {
    sum(with_gradient(matmul(leaves.w, leaves.v), gradient)).backward();
  });
  expect_the_same_of_a_copy([](const Leaves& leaves, const Tensor& gradient) {
    sum(with_gradient(leaves.w, gradient.transpose(0, 1))).backward();
  });
  // What waits in a node while another one's backward adds to the gradient.
  expect_the_same_of_a_copy([](const Leaves& leaves, const Tensor& gradient) {
    const Tensor early = tanh(leaves.v), late = square(leaves.w);
    sum(with_gradient(early, gradient) + late).backward();
  });
}

TEST(GradientAliasing, AHookMayMakeWhatItIsGivenTheGradientThatIsAddedTo) {
  for (const bool sunk : {false, true}) {
    const Leaves shared(sunk), copied(sunk);
    for (const Leaves* leaves : {&shared, &copied}) {
      const Tensor y = matmul(leaves->w, leaves->v);
      y.register_hook([&](const Tensor& gradient) {
        Tensor(leaves->w).set_grad(leaves == &shared ? gradient : gradient.clone());
      });
      y.backward(square(leaves->v.detach()));
    }
    EXPECT_TRUE(allclose(shared.w.grad(), copied.w.grad(), 1e-12, 1e-12)) << sunk;
    EXPECT_TRUE(allclose(shared.v.grad(), copied.v.grad(), 1e-12, 1e-12)) << sunk;
  }
}

TEST(GradientAliasing, ASavedTensorMayBecomeTheGradient) {
  const Leaves live(false), copied(false);
  for (const Leaves* leaves : {&live, &copied}) {
    const Tensor operand = full({60, 60}, 0.5, f64);
    const Tensor y = sum(square(matmul(leaves->w, operand)));
    Tensor(leaves->w).set_grad(leaves == &live ? operand : operand.clone());
    y.backward({}, true);
    y.backward();
  }
  EXPECT_TRUE(allclose(live.w.grad(), copied.w.grad(), 1e-12, 1e-12));
}

}  // namespace
}  // namespace lockstep
