#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autograd/fixed_sink.hpp"
#include "autograd/grad_check_cases.hpp"
#include "autograd/leaves.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/factories.hpp"

// Hooks of Tensor::register_hook.

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::leaf;

TEST(TensorHook, SeesAndReplacesTheGradientOfAComputedTensor) {
  const Tensor x = leaf({1.0, 2.0});
  const Tensor y = x * 3.0;
  std::vector<double> seen;
  y.register_hook([&](const Tensor& gradient) {
    seen = gradient.to_vector<double>();
    return gradient * 10.0;
  });
  sum(y * y).backward();
  EXPECT_THAT(seen, ElementsAre(6.0, 12.0));
  EXPECT_THAT(x.grad().to_vector<double>(), ElementsAre(180.0, 360.0));
}

TEST(TensorHook, SeesTheSumOfAllUses) {
  const Tensor x = leaf({2.0});
  const Tensor y = x * 1.0;
  int runs = 0;
  y.register_hook([&](const Tensor& gradient) {
    ++runs;
    EXPECT_EQ(gradient.item(), 5.0);
  });
  sum(y * 2.0 + y * 3.0).backward();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(x.grad().item(), 5.0);
}

TEST(TensorHook, OfALeafSeesWhatOneBackwardAdds) {
  const Tensor x = leaf({1.0});
  std::vector<double> seen;
  x.register_hook([&](const Tensor& gradient) {
    seen.push_back(gradient.item());
    return gradient * 0.5;
  });
  sum(x * 2.0 + x * 4.0).backward();
  sum(x * 8.0).backward();
  EXPECT_THAT(seen, ElementsAre(6.0, 8.0));
  EXPECT_EQ(x.grad().item(), 7.0);
}

TEST(TensorHook, OfALeafRunsBeforeThoseOnTheFinalGradient) {
  const Tensor x = leaf({1.0});
  autograd::leaf_of(x).add_hook([](autograd::LeafNode& node) {
    EXPECT_EQ(node.gradient().item(), 30.0);
    node.set_gradient(node.gradient() + 1.0);
  });
  x.register_hook([](const Tensor& gradient) { return gradient * 10.0; });
  sum(x * 3.0).backward();
  EXPECT_EQ(x.grad().item(), 31.0);
}

TEST(TensorHook, OfALeafChangesWhatItsSinkGets) {
  const Tensor weight = rand({3, 2}, DType::f64).set_requires_grad();
  const Tensor memory = full({3, 2}, 7.0, DType::f64);
  const testing::FixedSink sink(weight, memory);
  weight.register_hook([](const Tensor& gradient) { return gradient * 2.0; });
  sum(linear(ones({4, 2}, DType::f64), weight)).backward();
  EXPECT_EQ(weight.grad().data_ptr(), memory.data_ptr());
  EXPECT_THAT(memory.to_vector<double>(), ::testing::Each(8.0));
}

TEST(TensorHook, RunsInTheOrderOfRegistrationOnOneOutputOfSeveral) {
  const Tensor x = leaf({1.0, 2.0, 3.0});
  const std::vector<Tensor> parts = split(x, {1, 2});
  std::vector<int> order;
  parts[1].register_hook([&](const Tensor& gradient) {
    order.push_back(1);
    EXPECT_EQ(gradient.numel(), 2);
    return gradient * 2.0;
  });
  parts[1].register_hook([&](const Tensor& gradient) {
    order.push_back(2);
    EXPECT_EQ(gradient[0].item(), 2.0);
  });
  sum(cat(parts)).backward();
  EXPECT_THAT(order, ElementsAre(1, 2));
  EXPECT_THAT(x.grad().to_vector<double>(), ElementsAre(1.0, 2.0, 2.0));
}

TEST(TensorHook, IsRemovedByItsHandleAlsoFromWithin) {
  const Tensor x = leaf({1.0});
  int first = 0, second = 0;
  HookHandle own;
  own = x.register_hook([&](const Tensor&) {
    ++first;
    own.remove();
  });
  HookHandle other = x.register_hook([&](const Tensor&) { ++second; });
  for (int i = 0; i < 2; ++i) sum(x * 2.0).backward();
  other.remove();
  other.remove();
  sum(x * 2.0).backward();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
  EXPECT_EQ(x.grad().item(), 6.0);
}

TEST(TensorHook, HandleOutlivesTheGraph) {
  HookHandle handle;
  {
    const Tensor x = leaf({1.0});
    const Tensor y = x * 2.0;
    handle = y.register_hook([](const Tensor&) {});
    HookHandle nothing;
    nothing.remove();
  }
  handle.remove();
}

TEST(TensorHook, RunsAgainOverARetainedGraphAndOnTheTensorBackwardStartsFrom) {
  const Tensor x = leaf({1.0});
  const Tensor y = sum(x * 2.0);
  int runs = 0;
  y.register_hook([&](const Tensor& gradient) {
    ++runs;
    EXPECT_FALSE(grad_enabled());
    return gradient * 3.0;
  });
  y.backward({}, true);
  y.backward();
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(x.grad().item(), 12.0);
}

TEST(TensorHook, RefusesTensorsWithoutGradientAndResultsThatDoNotFit) {
  EXPECT_THROW(ones({2}).register_hook([](const Tensor&) {}), InvalidArgument);
  const Tensor x = leaf({1.0, 2.0});
  const Tensor y = x * 2.0;
  y.register_hook([](const Tensor& gradient) { return sum(gradient); });
  try {
    sum(y).backward();
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("a hook gave a gradient of shape [],"));
  }
}

TEST(TensorHook, LeavesNothingOfABackwardThatFailed) {
  const Tensor x = leaf({1.0});
  bool fails = true;
  x.register_hook([](const Tensor& gradient) { return gradient; });
  const Tensor early = x * 2.0;
  early.register_hook([&](const Tensor&) {
    if (fails) LOCKSTEP_THROW(InvalidArgument, "not now");
  });
  const Tensor y = sum(early + x * 3.0);
  EXPECT_THROW(y.backward({}, true), InvalidArgument);
  EXPECT_FALSE(x.grad().defined());
  fails = false;
  y.backward();
  EXPECT_EQ(x.grad().item(), 5.0);
}

TEST(TensorHook, SeesNothingOfABackwardInWhichItsLeafWasFrozen) {
  Tensor x = leaf({1.0});
  x.register_hook([](const Tensor& gradient) { return gradient * 100.0; });
  const Tensor early = x * 2.0, late = x * 5.0;
  early.register_hook([&](const Tensor&) { x.set_requires_grad(false); });
  sum(early + late).backward();
  x.set_requires_grad();
  EXPECT_FALSE(x.grad().defined());
  sum(x * 1.0).backward();
  EXPECT_EQ(x.grad().item(), 100.0);
}

TEST(TensorHook, SeesABackwardInsideAnotherByItself) {
  for (const bool fails : {false, true}) {
    const Tensor x = leaf({1.0});
    std::vector<double> seen;
    x.register_hook([&](const Tensor& gradient) { seen.push_back(gradient.item()); });
    const Tensor late = x * 5.0, early = x * 2.0;  // the latest op runs backward first
    late.register_hook([&](const Tensor&) {
      const GradModeGuard recording(true);
      const Tensor last = x * 7.0, failing = x * 3.0, first = x * 11.0;
      failing.register_hook([&](const Tensor&) {
        if (fails) LOCKSTEP_THROW(InvalidArgument, "not now");
      });
      const Tensor inner = sum(last + failing + first);
      if (!fails) return inner.backward();
      EXPECT_THROW(inner.backward(), InvalidArgument);
    });
    sum(late + early).backward();
    EXPECT_EQ(seen, fails ? std::vector<double>{7.0} : (std::vector<double>{21.0, 7.0}));
    EXPECT_EQ(x.grad().item(), fails ? 7.0 : 28.0);
  }
}

TEST(TensorHook, KeepsNothingAliveByItself) {
  const std::size_t before = test::live_bytes();
  {
    const Tensor x = rand({100}, DType::f64).set_requires_grad();
    const Tensor y = x * 2.0;
    y.register_hook([](const Tensor& gradient) { return gradient * 2.0; });
    x.register_hook([](const Tensor& gradient) { return gradient * 2.0; });
    sum(y).backward();
  }
  EXPECT_EQ(test::live_bytes(), before);
}

}  // namespace
}  // namespace lockstep
