#include "lockstep/autograd/engine.hpp"

#include <thread>

#include <gtest/gtest.h>

#include "autograd/fixed_sink.hpp"
#include "autograd/leaves.hpp"
#include "lockstep/autograd/op_call.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep {
namespace {

using testing::leaf;

TEST(Engine, AccumulatesGradientsOfSeveralUses) {
  const Tensor x = leaf({2.0, 3.0});
  sum(x * x + x * 3.0).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{7.0, 9.0}));
}

TEST(Engine, AddsToPresentGradients) {
  const Tensor x = leaf({1.0});
  sum(x * 2.0).backward();
  sum(x * 5.0).backward();
  EXPECT_EQ(x.grad().item(), 7.0);
}

TEST(Engine, RefusesALeafThatABackwardOfAnotherThreadReachesMeanwhile) {
  const Tensor x = leaf({1.0}), y = leaf({2.0});
  Tensor middle = x * 2.0;
  // Between what this thread's backward expects of x and what it hands over.
  const HookHandle hook = middle.register_hook([&](const Tensor& gradient) {
    std::thread([&] { sum(x * 3.0).backward(); }).join();
    return gradient;
  });
  EXPECT_THROW(sum(middle).backward(), InvalidArgument);
  // Where one waits for the other nothing is lost.
  Tensor(x).set_grad({});
  sum(x * y).backward();
  std::thread([&] { sum(x * y).backward(); }).join();
  EXPECT_EQ(x.grad().item(), 4.0);
  EXPECT_EQ(y.grad().item(), 2.0);
}

// One tensor handed to both inputs must not be accumulated into in place.
TEST(Engine, KeepsGradientsApartThatShareATensor) {
  const Tensor x = leaf({1.0}), y = leaf({1.0});
  const Tensor s = x + y;
  sum(s + x * 10.0).backward();
  EXPECT_EQ(x.grad().item(), 11.0);
  EXPECT_EQ(y.grad().item(), 1.0);
}

// Dependencies are counted from what backward reaches, not from what the forward built.
TEST(Engine, IgnoresBranchesThatTheRootDoesNotReach) {
  const Tensor x = leaf({2.0});
  const Tensor y = x * 3.0;
  [[maybe_unused]] const Tensor unused = y * 100.0;
  sum(y * y).backward();
  EXPECT_EQ(x.grad().item(), 36.0);
}

TEST(Engine, RunsAChainOfAMillionOpsWithoutRecursion) {
  const Tensor x = leaf({1.0});
  Tensor y = x;
  for (int i = 0; i < 1'000'000; ++i) y = y + 1.0;
  y.backward(ones({1}, y.options()));
  EXPECT_EQ(x.grad().item(), 1.0);
}

TEST(Engine, RefusesASecondBackwardUnlessRetained) {
  const Tensor x = leaf({3.0});
  const Tensor y = sum(x * x);
  y.backward({}, true);
  y.backward();
  EXPECT_EQ(x.grad().item(), 12.0);
  EXPECT_THROW(y.backward(), InvalidArgument);
}

TEST(Engine, NoticesASavedTensorChangedInPlace) {
  const Tensor x = leaf({3.0});
  Tensor factor = tensor<double>({2.0});
  const Tensor y = sum(x * factor);
  factor.add_(factor);
  EXPECT_THROW(y.backward(), InvalidArgument);
}

TEST(Engine, RefusesToChangeALeafWhileRecording) {
  Tensor x = leaf({3.0});
  EXPECT_THROW(x.mul_(2.0), InvalidArgument);
  no_grad([&] { x.mul_(2.0); });
  EXPECT_EQ(x.item(), 6.0);
}

TEST(Engine, NeedsAGradientForMoreThanOneElement) {
  const Tensor x = leaf({1.0, 2.0});
  const Tensor y = x * x;
  EXPECT_THROW(y.backward(), InvalidArgument);
  EXPECT_THROW(y.backward(ones({3}, y.options())), InvalidArgument);
  y.backward(tensor<double>({1.0, 10.0}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2.0, 40.0}));
}

TEST(Engine, FiresHooksOnceWhenTheGradientIsFinal) {
  const Tensor x = leaf({2.0});
  std::vector<double> seen;
  autograd::leaf_of(x).add_hook(
      [&](autograd::LeafNode& node) { seen.push_back(node.gradient().item()); });
  sum(x * x + x).backward();
  EXPECT_EQ(seen, (std::vector<double>{5.0}));
}

TEST(Engine, RunsQueuedCallbacksAfterTheLastLeaf) {
  const Tensor x = leaf({2.0});
  double at_end = 0;
  autograd::leaf_of(x).add_hook([&](autograd::LeafNode&) {
    autograd::Engine::queue_callback([&] { at_end = x.grad().item(); });
  });
  sum(x * x).backward();
  EXPECT_EQ(at_end, 4.0);
  EXPECT_THROW(autograd::Engine::queue_callback([] {}), InvalidArgument);
}

TEST(GradientSink, ReceivesGradientsInPlace) {
  const Tensor weight = randn({3, 4}, {.dtype = DType::f64}).set_requires_grad();
  const Tensor x = randn({5, 4}, {.dtype = DType::f64});
  sum(linear(x, weight)).backward();
  const Tensor expected = weight.grad();

  Tensor bucket = full({12}, 99.0, {.dtype = DType::f64});
  autograd::LeafNode& node = autograd::leaf_of(weight);
  node.clear_gradient();
  const testing::FixedSink sink(weight, bucket.reshape({3, 4}));
  EXPECT_FALSE(weight.grad().defined());
  sum(linear(x, weight)).backward();
  EXPECT_EQ(weight.grad().data_ptr(), bucket.data_ptr());
  EXPECT_EQ(weight.grad().to_vector<double>(), expected.to_vector<double>());

  sum(linear(x, weight)).backward();
  EXPECT_NEAR(bucket.to_vector<double>()[0], 2 * expected.to_vector<double>()[0], 1e-12);

  node.clear_gradient();
  sum(linear(x, weight)).backward();
  EXPECT_EQ(bucket.to_vector<double>()[0], expected.to_vector<double>()[0]);
}

/// x, whose backward notes whether it was to add to what other ops have contributed.
Tensor noted(const Tensor& x, bool& adds) {
  static constexpr OpDescriptor op{.name = "noted"};
  const autograd::OpCall call(op, x);
  return call.record(call[0], [&adds](const Tensor& dy, autograd::InputGradients& inputs) {
    inputs.write(0, dy.shape(), dy.options(), [&](const Tensor& dx, bool accumulate) {
      adds = accumulate;
      Tensor out = dx;
      accumulate ? out.add_(dy) : out.copy_(dy);
    });
  });
}

// Residual connections: nothing but the last contribution's op touches the sum.
TEST(Engine, LetsOpsAddToWhatOthersHaveContributed) {
  const Tensor x = leaf({2.0, 3.0});
  bool adds = false;
  const Tensor h = square(x);
  std::vector<double> seen;
  h.register_hook([&](const Tensor& gradient) {
    seen = gradient.to_vector<double>();
    return gradient;
  });
  const Tensor early = noted(h, adds);
  sum(early * 3.0 + h * 5.0).backward();
  EXPECT_TRUE(adds);
  EXPECT_EQ(seen, (std::vector<double>{8.0, 8.0}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{32.0, 48.0}));
}

// Residual connections between images, channels-last or not.
TEST(Engine, LetsOpsAddToWhatLiesAsTheirOperandDoes) {
  for (const bool alike : {true, false}) {
    Tensor x = ones({2, 3, 4, 5}, DType::f64).channels_last();
    x.set_requires_grad(true);
    bool adds = false;
    const Tensor h = square(x);
    static constexpr OpDescriptor op{.name = "noted"};
    const autograd::OpCall call(op, h);
    const Tensor early =
        call.record(call[0].clone(), [&](const Tensor& dy, autograd::InputGradients& inputs) {
          const Tensor other = dy.is_contiguous() ? dy.channels_last() : dy.contiguous();
          inputs.write_like(0, alike ? dy : other, [&](Tensor dx, bool accumulate) {
            adds = accumulate;
            accumulate ? dx.add_(dy) : dx.copy_(dy);
          });
        });
    sum(early * 3.0 + h * 5.0).backward();
    EXPECT_EQ(adds, alike);
    EXPECT_EQ(x.grad().contiguous().to_vector<double>(), std::vector<double>(120, 16.0));
  }
}

TEST(Engine, LetsOpsAddToNothingThatOthersSee) {
  const Tensor x = leaf({2.0, 3.0});
  bool adds = true;
  Tensor h = square(x);
  // The gradient that waits at h is the very one that `noted` works on.
  sum(h + noted(h, adds)).backward();
  EXPECT_FALSE(adds);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{8.0, 12.0}));

  // The one that waits has been kept by a hook.
  h = square(x);
  const Tensor early = noted(h, adds = true), late = h + ones_like(h);
  Tensor kept;
  late.register_hook([&](const Tensor& gradient) { return kept = gradient; });
  sum(early + late * 5.0).backward();
  EXPECT_FALSE(adds);
  EXPECT_EQ(kept.to_vector<double>(), (std::vector<double>{5.0, 5.0}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{32.0, 48.0}));

  // It lies in another order than ops write.
  const Tensor wide = ones({2, 3}, {.dtype = DType::f64}).set_requires_grad();
  h = square(wide);
  const Tensor first = noted(h, adds = true);
  const Tensor second = (h.transpose(0, 1) * 5.0).transpose(0, 1);
  sum(first + second).backward();
  EXPECT_FALSE(adds);
  EXPECT_EQ(wide.grad().to_vector<double>(), std::vector<double>(6, 12.0));
}

// Otherwise each op behind it would have to convert it, and the next one back.
TEST(Engine, KeepsTheLayoutOfGradientsThatItAddsUp) {
  Tensor x = ones({2, 3, 4, 5}).channels_last();
  x.set_requires_grad();
  const Tensor y = relu(x);
  bool is_kept = false;
  y.register_hook([&](const Tensor& gradient) {
    is_kept = gradient.is_channels_last();
    return gradient;
  });
  const auto in_its_layout = [](const Tensor& gradient) { return gradient.channels_last(); };
  const Tensor one = relu(y), other = relu(y), both = one + y;
  for (const Tensor& each : {one, other, both}) each.register_hook(in_its_layout);
  (sum(both) + sum(other)).backward();
  EXPECT_TRUE(is_kept);
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(120, 3.0f));
}

// A hook's own backward reaches the other parameter of the op whose gradients are being handed
// over.
TEST(Engine, AHooksBackwardLosesNoGradientOfTheSameOp) {
  for (const bool is_norm : {false, true})
    for (const bool hooks_bias : {false, true}) {
      const Tensor x = affine(arange(12, {.dtype = DType::f32}), 1.0, 0.0).reshape({4, 3});
      Tensor weight = ones(is_norm ? Shape{3} : Shape{2, 3}).set_requires_grad();
      Tensor bias = ones(is_norm ? Shape{3} : Shape{2}).set_requires_grad();
      const auto loss = [&] {
        return (is_norm ? layer_norm(x, {3}, weight, bias) : linear(x, weight, bias)).sum();
      };
      loss().backward();
      Tensor& other = hooks_bias ? weight : bias;
      const Tensor own = other.grad().clone();
      weight.set_grad({}), bias.set_grad({});
      (hooks_bias ? bias : weight).register_hook([&](const Tensor&) {
        const GradModeGuard recording(true);
        (other * 100.0).sum().backward();
        return Tensor();
      });
      loss().backward();
      EXPECT_TRUE(equal(other.grad(), own + 100.0)) << is_norm << hooks_bias;
    }
}

}  // namespace
}  // namespace lockstep
