#include <limits>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/leaves.hpp"
#include "lockstep/autograd/op_call.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/tensor/factories.hpp"

// What lives how long, what is recorded, and what happens when backward fails.

namespace lockstep {
namespace {

using testing::leaf;

std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

std::size_t live_bytes() { return device_allocator(cpu).statistics().live_bytes; }

TEST(Graph, OfAMillionOpsIsFreedWithOrWithoutBackward) {
  const Tensor x = leaf({1.0});
  const std::size_t before = live_bytes();
  for (const bool with_backward : {false, true}) {
    Tensor y = x;
    for (int i = 0; i < 1'000'000; ++i) y = tanh(y);
    if (with_backward) sum(y).backward();
    y = Tensor();
    Tensor(x).set_grad({});
    EXPECT_EQ(live_bytes(), before);
  }
}

TEST(Graph, FreesWhatIsSavedAsBackwardGoes) {
  const Tensor x = ones({1024}, {.dtype = DType::f64}).set_requires_grad();
  Tensor y = x;
  for (int i = 0; i < 50; ++i) y = exp(y * 0.1);
  const Tensor loss = sum(y);
  y = Tensor();
  const std::size_t with_graph = live_bytes();
  loss.backward();
  EXPECT_LT(live_bytes() + 40 * x.nbytes(), with_graph);
}

/// Passes x through, and throws on the way back.
Tensor throwing(const Tensor& x) {
  static constexpr OpDescriptor op{.name = "throwing"};
  const autograd::OpCall call(op, x);
  return call.record(x.detach().clone(), [](const Tensor&, autograd::InputGradients&) {
    throw std::runtime_error("in backward");
  });
}

TEST(Graph, IsFreedAfterABackwardThatThrew) {
  const Tensor x = leaf({1.0, 2.0}), w = leaf({3.0, 4.0});
  const std::size_t before = live_bytes();
  {
    const Tensor y = sum(throwing(x * w) + w * 2.0);
    EXPECT_THROW(y.backward(), std::runtime_error);
    EXPECT_FALSE(x.grad().defined());
    EXPECT_THROW(y.backward(), InvalidArgument);
  }
  Tensor(w).set_grad({});
  EXPECT_EQ(live_bytes(), before);
  sum(x * w).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{3.0, 4.0}));
  EXPECT_THROW(autograd::Engine::queue_callback([] {}), InvalidArgument);
}

TEST(Graph, HoldsNoGradientsAfterABackwardThatThrew) {
  const Tensor x = leaf({1.0, 2.0});
  const Tensor late = x * 2.0;                    // runs last, and holds a gradient meanwhile
  const Tensor y = sum(throwing(x) + late, {0});  // throws first
  const std::size_t before = live_bytes();
  EXPECT_THROW(y.backward({}, true), std::runtime_error);
  EXPECT_EQ(live_bytes(), before);
}

TEST(Recording, StopsInANoGradScopeAndComesBack) {
  const Tensor x = leaf({2.0});
  Tensor inside;
  {
    const NoGradGuard guard;
    EXPECT_FALSE(grad_enabled());
    inside = x * x;
    const GradModeGuard again(true);
    EXPECT_TRUE((x * x).requires_grad());
  }
  EXPECT_FALSE(inside.requires_grad());
  EXPECT_TRUE(grad_enabled());
  EXPECT_TRUE((x * x).requires_grad());
  try {
    no_grad([] { throw std::runtime_error("leaves the scope"); });
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(grad_enabled());
}

TEST(Recording, IsEachThreadsOwn) {
  const NoGradGuard guard;
  bool elsewhere = false;
  std::thread([&] { elsewhere = grad_enabled(); }).join();
  EXPECT_TRUE(elsewhere);
  EXPECT_FALSE(grad_enabled());
}

TEST(Recording, LeavesOutWhatIsDetached) {
  const Tensor x = leaf({3.0});
  const Tensor y = x * x;
  EXPECT_FALSE(y.detach().requires_grad());
  EXPECT_TRUE(y.detach().is_leaf());
  EXPECT_EQ(y.detach().data_ptr(), y.data_ptr());
  sum(x * y.detach()).backward();
  EXPECT_EQ(x.grad().item(), 9.0);
}

TEST(Recording, IsOnlyForFloatingDtypesAndLeaves) {
  EXPECT_THROW(arange(3).set_requires_grad(), InvalidArgument);
  const Tensor x = leaf({1.0});
  Tensor y = x * 2.0;
  EXPECT_FALSE(y.is_leaf());
  EXPECT_THROW(y.set_requires_grad(false), InvalidArgument);
  EXPECT_THROW(y.grad(), InvalidArgument);
  EXPECT_THROW(zeros({1}).backward(), InvalidArgument);
}

TEST(InPlaceOps, RefuseAnOperandWhoseGradientWouldGetLost) {
  const Tensor x = leaf({1.0});
  Tensor total = zeros({1}, {.dtype = DType::f64});
  EXPECT_THROW(total.add_(x), InvalidArgument);
  EXPECT_THROW(total.copy_(x), InvalidArgument);
  total.add_(x.detach());
  EXPECT_EQ(total.item(), 1.0);
}

TEST(SavedTensor, NoticesAChangeThroughAView) {
  Tensor factor = tensor<double>({2.0, 3.0});
  const Tensor x = leaf({1.0, 1.0});
  const Tensor y = sum(x * factor);
  factor.slice(0, 0, 1).fill_(5.0);
  EXPECT_THROW(y.backward(), InvalidArgument);
}

TEST(SavedTensor, NoticesAChangeOfTheBaseOfASavedView) {
  Tensor base = tensor<double>({2.0, 3.0});
  const Tensor x = leaf({1.0});
  const Tensor y = sum(x * base.slice(0, 1, 2));
  base.mul_(2.0);
  EXPECT_THROW(y.backward(), InvalidArgument);
}

TEST(SavedTensor, NoticesAChangedResult) {
  const Tensor x = leaf({1.0});
  const Tensor y = exp(x);
  no_grad([&] { Tensor(y).fill_(0.0); });
  EXPECT_THROW(sum(y).backward(), InvalidArgument);
}

TEST(SavedTensor, NoticesALeafThatWasGivenAnotherArray) {
  Tensor x = leaf({2.0});
  const Tensor y = sum(x * x);
  no_grad([&] { x.set_data(tensor<double>({5.0})); });
  EXPECT_THROW(y.backward(), InvalidArgument);
}

TEST(SavedTensor, DoesNotMindChangesOfWhatIsNotSaved) {
  const Tensor x = leaf({1.0});
  const Tensor y = x + 1.0;
  no_grad([&] { Tensor(y).fill_(0.0); });
  sum(y).backward();
  EXPECT_EQ(x.grad().item(), 1.0);
}

TEST(SeveralOutputs, MayBeUnused) {
  const Tensor x = leaf({1.0, 2.0, 3.0});
  {
    const auto parts = split(x, {1, 1, 1});
    sum(parts[1] * 5.0).backward();
  }
  EXPECT_EQ(values(x.grad()), (std::vector<double>{0.0, 5.0, 0.0}));
}

TEST(SeveralOutputs, MayBeMoreThanATensorHasDimensions) {
  const Tensor x = ones({12}, {.dtype = DType::f64}).set_requires_grad();
  const auto parts = chunk(x, 12);
  EXPECT_EQ(parts.size(), 12u);
  sum(parts[11] * 2.0).backward();
  EXPECT_EQ(x.grad().to_vector<double>()[11], 2.0);
  EXPECT_THROW(split(x, {5, 5}), InvalidArgument);
}

TEST(SeveralOutputs, OfNothingAreEmptyParts) {
  const Tensor x = zeros({0, 3}).set_requires_grad();
  const auto chunks = chunk(x, 2);
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[1].shape(), Shape({0, 3}));
  ASSERT_EQ(split(x, 2).size(), 1u);
  EXPECT_EQ(cat(split(x, 2)).shape(), x.shape());
  sum(chunks[0]).backward();
  EXPECT_EQ(x.grad().shape(), x.shape());
}

TEST(Pad, RefusesMoreThanATensorCanHold) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(pad(ones({3, 4}), std::vector{most, most - 1}), InvalidArgument);
}

TEST(SeveralRoots, AddUpWhereTheirGraphsMeet) {
  const Tensor x = leaf({2.0});
  const Tensor middle = x * x;
  const std::vector<Tensor> roots{middle * 3.0, middle, x};
  const std::vector<Tensor> gradients(3, ones({1}, {.dtype = DType::f64}));
  autograd::Engine::run(roots, gradients, false);
  EXPECT_EQ(x.grad().item(), 17.0);
}

TEST(Backward, RunsInSeveralThreadsOnTheirOwnGraphs) {
  std::vector<std::thread> threads;
  std::vector<double> results(4);
  for (std::size_t t = 0; t < results.size(); ++t)
    threads.emplace_back([&results, t] {
      for (int i = 0; i < 200; ++i) {
        const Tensor x = leaf({static_cast<double>(t)});
        sum(x * x * x).backward();
        results[t] = x.grad().item();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results, (std::vector<double>{0.0, 3.0, 12.0, 27.0}));
}

TEST(Backward, MayRunInsideAHook) {
  const Tensor x = leaf({2.0}), other = leaf({5.0});
  autograd::leaf_of(x).add_hook([&](autograd::LeafNode&) {
    const GradModeGuard record(true);  // a backward records nothing by itself
    sum(other * other).backward();
  });
  sum(x * x).backward();
  EXPECT_EQ(x.grad().item(), 4.0);
  EXPECT_EQ(other.grad().item(), 10.0);
}

// The inner backward reaches the leaf before the outer one is done with it.
TEST(Backward, InsideAHookMayReachTheLeavesOfTheOuterOne) {
  const Tensor x = leaf({2.0}), shared = leaf({5.0});
  std::vector<double> seen;
  autograd::leaf_of(shared).add_hook(
      [&](autograd::LeafNode& node) { seen.push_back(node.gradient().item()); });
  autograd::leaf_of(x).add_hook([&](autograd::LeafNode&) {
    const GradModeGuard record(true);
    sum(shared * 10.0).backward();
  });
  const Tensor late = shared * 3.0;  // what is recorded first runs last
  sum(late + x * 2.0).backward();
  EXPECT_EQ(shared.grad().item(), 13.0);
  EXPECT_EQ(seen, (std::vector<double>{10.0, 13.0}));
}

TEST(Backward, InsideAHookRefusesTheOpsOfTheOuterOne) {
  const Tensor x = leaf({2.0}), y = leaf({3.0});
  const Tensor late = y * y;
  autograd::leaf_of(x).add_hook([&](autograd::LeafNode&) {
    const GradModeGuard record(true);
    sum(late).backward({}, true);
  });
  EXPECT_THROW(sum(late + x * 2.0).backward({}, true), InvalidArgument);
  EXPECT_FALSE(y.grad().defined());
}

// A callback may fail too: what is queued behind it hears of it, and the engine is free again.
TEST(Backward, LeavesNoTraceOfACallbackThatThrew) {
  const Tensor x = leaf({2.0});
  bool armed = true;
  autograd::leaf_of(x).add_hook([&](autograd::LeafNode&) {
    autograd::Engine::queue_callback([&] {
      if (std::exchange(armed, false)) throw std::runtime_error("in a callback");
    });
  });
  EXPECT_THROW(sum(x * x).backward(), std::runtime_error);
  EXPECT_THROW(autograd::Engine::queue_callback([] {}), InvalidArgument);
  sum(x * x).backward();
  EXPECT_EQ(x.grad().item(), 8.0);
}

}  // namespace
}  // namespace lockstep
