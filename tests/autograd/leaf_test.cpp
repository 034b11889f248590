#include "lockstep/autograd/leaf.hpp"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/fixed_sink.hpp"
#include "autograd/leaves.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep {
namespace {

using autograd::leaf_of;
using autograd::LeafNode;
using testing::FixedSink;
using testing::leaf;

TEST(LeafHooks, FireUntilRemoved) {
  const Tensor x = leaf({1.0});
  std::vector<int> fired;
  LeafNode& node = leaf_of(x);
  const auto first = node.add_hook([&](LeafNode&) { fired.push_back(1); });
  node.add_hook([&](LeafNode&) { fired.push_back(2); });
  sum(x * 2.0).backward();
  node.remove_hook(first);
  node.remove_hook(first);
  sum(x * 2.0).backward();
  EXPECT_EQ(fired, (std::vector<int>{1, 2, 2}));
}

TEST(LeafHooks, MayRemoveThemselvesWithoutSkippingOthers) {
  const Tensor x = leaf({1.0});
  std::vector<int> fired;
  LeafNode& node = leaf_of(x);
  std::uint64_t own = 0;
  own = node.add_hook([&](LeafNode& at) {
    fired.push_back(1);
    at.remove_hook(own);
  });
  node.add_hook([&](LeafNode&) { fired.push_back(2); });
  node.add_hook([&](LeafNode&) { fired.push_back(3); });
  for (int i = 0; i < 2; ++i) sum(x * 2.0).backward();
  EXPECT_EQ(fired, (std::vector<int>{1, 2, 3, 2, 3}));
}

// Parameters that are used late in the forward are final early in the backward.
TEST(LeafHooks, FireInTheOrderInWhichGradientsBecomeFinal) {
  const Tensor first = leaf({1.0}), second = leaf({2.0}), shared = leaf({3.0});
  std::vector<int> order;
  leaf_of(first).add_hook([&](LeafNode&) { order.push_back(1); });
  leaf_of(second).add_hook([&](LeafNode&) { order.push_back(2); });
  leaf_of(shared).add_hook([&](LeafNode&) { order.push_back(3); });
  const Tensor hidden = tanh(first * shared);
  sum(tanh(hidden * second) * shared).backward();
  ASSERT_EQ(order.size(), 3u);
  EXPECT_EQ(order[0], 2);  // shared waits for its first use
}

TEST(LeafGradient, DoesNotShareMemoryWithAGivenGradient) {
  const Tensor x = leaf({1.0, 2.0});
  Tensor given = tensor<double>({5.0, 6.0});
  x.backward(given);
  EXPECT_TRUE(equal(x.grad(), given));
  given.fill_(0.0);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{5.0, 6.0}));
}

TEST(LeafGradient, DoesNotShareMemoryBetweenLeaves) {
  const Tensor x = leaf({1.0}), y = leaf({1.0});
  sum(x + y).backward();
  sum(x * 3.0).backward();
  EXPECT_EQ(x.grad().item(), 4.0);
  EXPECT_EQ(y.grad().item(), 1.0);
}

TEST(LeafGradient, IsContiguousEvenIfAViewArrived) {
  const Tensor x = randn({3, 4}, {.dtype = DType::f64}).set_requires_grad();
  sum(x.transpose(0, 1) * 2.0).backward();
  EXPECT_TRUE(x.grad().is_contiguous());
  const Tensor y = randn({3, 4}, {.dtype = DType::f64}).set_requires_grad();
  sum(y).backward();
  EXPECT_TRUE(y.grad().is_contiguous());
  Tensor(y.grad()).add_(y.grad().clone());
  EXPECT_EQ(y.grad().to_vector<double>()[5], 2.0);
}

TEST(LeafGradient, AcceptsAViewAndAddsToIt) {
  const Tensor w = randn({3, 4}, {.dtype = DType::f64}).set_requires_grad();
  const Tensor given = ones({4, 3}, {.dtype = DType::f64}).transpose(0, 1);
  Tensor(w).set_grad(given);
  const Tensor x = ones({2, 4}, {.dtype = DType::f64});
  sum(linear(x, w)).backward();
  EXPECT_TRUE(equal(w.grad(), full({3, 4}, 3.0, {.dtype = DType::f64})));
}

TEST(LeafGradient, MustFit) {
  Tensor x = leaf({1.0, 2.0});
  EXPECT_THROW(x.set_grad(zeros({3}, x.options())), InvalidArgument);
  EXPECT_THROW(x.set_grad(zeros({2})), InvalidArgument);
  x.set_grad(ones({2}, x.options()));
  x.set_grad({});
  EXPECT_FALSE(x.grad().defined());
  EXPECT_THROW(leaf_of(x * 2.0), InvalidArgument);
  EXPECT_THROW(leaf_of(zeros({1})), InvalidArgument);
}

TEST(FrozenLeaf, KeepsItsGradientAndHooksForLater) {
  Tensor x = leaf({1.0, 2.0});
  int fired = 0;
  leaf_of(x).add_hook([&](LeafNode&) { ++fired; });
  sum(x * 2.0).backward();
  x.set_requires_grad(false);
  EXPECT_FALSE(x.requires_grad());
  EXPECT_TRUE(x.is_leaf());
  EXPECT_FALSE((x * 2.0).requires_grad());
  x.set_requires_grad();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2.0, 2.0}));
  sum(x * 3.0).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{5.0, 5.0}));
  EXPECT_EQ(fired, 2);
}

TEST(FrozenLeaf, CollectsNothingAndLetsALossRecordedBeforeArriveOnceItIsUnfrozen) {
  Tensor x = leaf({1.0, 2.0});
  const Tensor w = leaf({1.0, 1.0});
  const Tensor loss = sum(x * w);
  x.set_requires_grad(false);
  loss.backward({}, true);
  x.set_requires_grad();
  EXPECT_FALSE(x.grad().defined());
  loss.backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1.0, 1.0}));
}

TEST(FrozenLeaf, MayHaveItsGradientCleared) {
  Tensor x = leaf({1.0, 2.0}), plain = zeros({2});
  sum(x * 2.0).backward();
  x.set_requires_grad(false);
  x.set_grad({});
  plain.set_grad({});
  x.set_requires_grad();
  EXPECT_FALSE(x.grad().defined());
}

// Every way a gradient can arrive: written by the op, handed over, or both, in either order.
TEST(GradientSink, TakesASecondContributionOfEitherKind) {
  const TensorOptions f64{.dtype = DType::f64};
  const Tensor x = randn({5, 4}, f64);
  const auto loss = [&](const Tensor& w, int order) {
    const Tensor written = sum(linear(x, w)), handed = sum(w * 3.0);
    switch (order) {
      case 0: return written + handed;
      case 1: return handed + written;
      case 2: return written + sum(linear(x, w) * 2.0);
      default: return handed + sum(square(w));
    }
  };
  for (int order = 0; order < 4; ++order) {
    const Tensor plain = ones({3, 4}, f64).set_requires_grad();
    const Tensor sunk = ones({3, 4}, f64).set_requires_grad();
    const Tensor bucket = full({3, 4}, 99.0, f64);
    const FixedSink sink(sunk, bucket);
    for (int step = 0; step < 2; ++step) {
      loss(plain, order).backward();
      loss(sunk, order).backward();
      EXPECT_TRUE(allclose(bucket, plain.grad(), 1e-12)) << order << ", step " << step;
      EXPECT_EQ(sunk.grad().data_ptr(), bucket.data_ptr());
    }
    leaf_of(sunk).clear_gradient();
    leaf_of(plain).clear_gradient();
    loss(plain, order).backward();
    loss(sunk, order).backward();
    EXPECT_TRUE(allclose(bucket, plain.grad(), 1e-12)) << order << " after clearing";
  }
}

TEST(GradientSink, TakesOverAPresentGradientAndGivesItBack) {
  const Tensor x = leaf({1.0, 2.0});
  sum(x * 3.0).backward();
  Tensor bucket = zeros({2}, x.options());
  auto sink = std::make_unique<FixedSink>(x, bucket);
  EXPECT_EQ(bucket.to_vector<double>(), (std::vector<double>{3.0, 3.0}));
  sink.reset();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_NE(x.grad().data_ptr(), bucket.data_ptr());
  bucket.fill_(0.0);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3.0, 3.0}));
  EXPECT_FALSE(leaf_of(x).has_sink());
}

TEST(GradientSink, BelongsToTheOneThatTookItLast) {
  const Tensor x = leaf({1.0, 2.0});
  const Tensor first_memory = zeros({2}, x.options()), second_memory = zeros({2}, x.options());
  auto first = std::make_unique<FixedSink>(x, first_memory);
  sum(x * 3.0).backward();
  const FixedSink second(x, second_memory);
  EXPECT_TRUE(first->taken);
  EXPECT_EQ(x.grad().data_ptr(), second_memory.data_ptr());
  first.reset();  // has nothing to take away
  sum(x * 2.0).backward();
  EXPECT_EQ(second_memory.to_vector<double>(), (std::vector<double>{5.0, 5.0}));
  EXPECT_EQ(second.times_final, 1);
}

TEST(GradientSink, HearsOfAGradientAfterAllHooks) {
  const Tensor x = leaf({1.0});
  const FixedSink sink(x, zeros({1}, x.options()));
  int before = -1;
  leaf_of(x).add_hook([&](LeafNode&) { before = sink.times_final; });
  sum(x).backward();
  EXPECT_EQ(before, 0);
  EXPECT_EQ(sink.times_final, 1);
}

TEST(GradientSink, MustBeContiguousAndFit) {
  const Tensor x = leaf({1.0, 2.0});
  const Tensor wide = zeros({4}, x.options());
  for (const Tensor& memory : {wide, wide.slice(0, 0, 4, 2), zeros({2})}) {
    const FixedSink sink(x, memory);
    EXPECT_THROW(sum(x).backward(), InvalidArgument);
    EXPECT_THROW(Tensor(x).set_grad(ones({2}, x.options())), InvalidArgument);
    EXPECT_FALSE(x.grad().defined());
  }
}

TEST(GradientSink, ServesNormsAndEmbeddingsToo) {
  const TensorOptions f64{.dtype = DType::f64};
  const Tensor table = randn({4, 3}, f64).set_requires_grad();
  const Tensor weight = ones({3}, f64).set_requires_grad(),
               bias = zeros({3}, f64).set_requires_grad();
  const auto run = [&] {
    const Tensor x = embedding(tensor<std::int64_t>({1, 3, 1}), table);
    sum(square(layer_norm(x, {3}, weight, bias) + 0.5)).backward();
  };
  run();
  const std::vector<Tensor> expected{table.grad().clone(), weight.grad().clone(),
                                     bias.grad().clone()};
  const Tensor bucket = full({18}, -7.0, f64);
  const Tensor parts[] = {bucket.slice(0, 0, 12).reshape({4, 3}), bucket.slice(0, 12, 15),
                          bucket.slice(0, 15, 18)};
  const Tensor leaves[] = {table, weight, bias};
  std::vector<std::unique_ptr<FixedSink>> sinks;
  for (std::size_t i = 0; i < 3; ++i) {
    leaf_of(leaves[i]).clear_gradient();
    sinks.push_back(std::make_unique<FixedSink>(leaves[i], parts[i]));
  }
  run();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(equal(parts[i], expected[i])) << i;
}

TEST(Dropout, UsesTheSameMaskForwardAndBackward) {
  manual_seed(5);
  const Tensor x = ones({1000}, {.dtype = DType::f64}).set_requires_grad();
  const Tensor y = dropout(x, 0.25);
  sum(y).backward();
  EXPECT_TRUE(equal(x.grad(), y.detach()));
  const double kept = sum(y).item() * 0.75;
  EXPECT_NEAR(kept, 750.0, 60.0);
  manual_seed(5);
  EXPECT_TRUE(equal(dropout(x, 0.25).detach(), y.detach()));
  EXPECT_FALSE(equal(dropout(x, 0.25).detach(), y.detach()));
}

TEST(Dropout, DoesNothingInEvaluationAndZeroesAllAtOne) {
  const Tensor x = ones({8});
  EXPECT_TRUE(dropout(x, 0.5, false).is_same(x));
  EXPECT_TRUE(equal(dropout(x, 1.0), zeros({8})));
  EXPECT_THROW(dropout(x, 1.5), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
