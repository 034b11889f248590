#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/lockstep.hpp"
#include "support/grad_check.hpp"

// Gradients that are recorded: what is built of them, and who may differentiate what. That those of
// each op are right stand beside its first ones, in the tests of gradients.

namespace lockstep::autograd {
namespace {

using ::testing::HasSubstr;

constexpr TensorOptions in_f64{DType::f64};
const GradOptions recorded{.create_graph = true};

Tensor random_leaf(const Shape& shape) { return randn(shape, in_f64).set_requires_grad(); }

void expect_equal(const Tensor& actual, const Tensor& expected, double tolerance = 1e-12) {
  ASSERT_TRUE(actual.defined());
  ASSERT_EQ(actual.shape(), expected.shape());
  EXPECT_LE(max_abs_difference(actual.detach(), expected.detach()), tolerance);
}

TEST(SecondDerivatives, GoToAnyOrder) {
  const Tensor x = random_leaf({4});
  Tensor y = sin(x);
  const std::vector<std::function<Tensor()>> orders{[&] { return cos(x); }, [&] { return -sin(x); },
                                                    [&] { return -cos(x); },
                                                    [&] { return sin(x); }};
  for (const auto& expected : orders) {
    y = grad(sum(y), {x}, recorded)[0];
    expect_equal(y, expected());
  }
  const Tensor power = grad(sum(pow(x, 3.0)), {x}, recorded)[0];
  expect_equal(grad(sum(power), {x}, recorded)[0], x * 6.0);
}

TEST(SecondDerivatives, AreOfASumWhereAGradientStandsBesideOtherTerms) {
  const Tensor x = random_leaf({3, 2}), w = random_leaf({2});
  const Tensor slope = grad(sum(square(x) * w), {x}, recorded)[0];  // 2 x w
  (sum(square(slope)) + sum(w)).backward();
  expect_equal(w.grad(), sum(8.0 * square(x) * w, {0}) + 1.0);
  expect_equal(x.grad(), 8.0 * x * square(w));
}

// Each input is a variable of its own, whatever it was computed from.
TEST(SecondDerivatives, AreOfOperandsThatComeFromOneAnother) {
  testing::expect_second_gradients(
      [](const std::vector<Tensor>& in) {
        const Tensor x = tanh(in[0]);
        const Tensor attended = scaled_dot_product_attention(x, x, square(x));
        return layer_norm(attended, {4}, x.select(0, 0).select(0, 0).select(0, 0), in[1]) * x;
      },
      {randn({1, 2, 3, 4}, in_f64), randn({4}, in_f64)});
}

/// A critic of images, small enough for differences.
Tensor critic(const Tensor& x, std::span<const Tensor> w) {
  Tensor h = leaky_relu(conv2d(x, w[0], w[1], {.stride = 2, .padding = 1}), 0.2);
  h = group_norm(h, 2, w[2], w[3]);
  h = silu(avg_pool2d(h, {.kernel = 2}));
  return linear(h.flatten(1), w[4], w[5]);
}

TEST(SecondDerivatives, OfAGradientPenaltyMatchDifferences) {
  manual_seed(3);
  const Tensor images = randn({2, 2, 8, 8}, in_f64);
  const auto penalty = [&](const std::vector<Tensor>& w) {
    const GradModeGuard recording(true);
    const Tensor x = images.clone().set_requires_grad();
    const Tensor slope = grad(sum(critic(x, w)), {x}, recorded)[0];
    return mean(square(norm(slope.flatten(1), {1}) - 1.0));
  };
  std::vector<Tensor> weights;
  for (const Shape& shape : {Shape{4, 2, 3, 3}, {4}, {4}, {4}, {1, 16}, {1}})
    weights.push_back(randn(shape, in_f64) * 0.5);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    SCOPED_TRACE(i);
    if (i == 5) continue;  // the last bias moves no slope
    testing::expect_gradients(
        [&](const std::vector<Tensor>& in) {
          std::vector<Tensor> w = weights;
          w[i] = in[0];
          return penalty(w);
        },
        {weights[i].clone()});
  }
}

TEST(SecondDerivatives, GoThroughTheStepsOfAnInnerLoop) {
  const Tensor x = randn({5, 3}, in_f64), target = randn({5, 2}, in_f64);
  testing::expect_gradients(
      [&](const std::vector<Tensor>& in) {
        const GradModeGuard recording(true);
        Tensor w = in[0], b = in[1];
        for (int i = 0; i < 3; ++i) {
          const Tensor loss = mse_loss(tanh(linear(x, w, b)), target);
          const auto slopes = grad(loss, {w, b}, recorded);
          w = w - slopes[0] * 0.3;
          b = b - slopes[1] * 0.3;
        }
        return mse_loss(tanh(linear(x, w, b)), target);
      },
      {randn({2, 3}, in_f64), randn({2}, in_f64)});
}

TEST(SecondDerivatives, MakeProductsWithTheHessianAndTheJacobian) {
  const Tensor x = random_leaf({3}), v = randn({3}, in_f64);
  const Tensor a = randn({3, 3}, in_f64);
  const Tensor slope = grad(matmul(x, matmul(a, x)) * 0.5, {x}, recorded)[0];
  expect_equal(grad({slope}, {x}, {.grad_outputs = {v}, .retain_graph = true})[0],
               matmul((a + a.t()) * 0.5, v));
  // By two backwards: that of the gradient, which is linear in the first one's gradient.
  const Tensor y = exp(matmul(a, x)), u = zeros_like(y).set_requires_grad();
  const Tensor pulled = grad({y}, {x}, {.grad_outputs = {u}, .create_graph = true})[0];
  expect_equal(grad({pulled}, {u}, {.grad_outputs = {v}})[0], y * matmul(a, v));
}

TEST(SecondDerivatives, RunCheckpointedPartsAgain) {
  const Tensor x = random_leaf({3}), w = random_leaf({3});
  const auto penalty = [&](bool again) {
    const auto part = [&](const Tensor& z) { return exp(tanh(z * w)); };
    const Tensor slope = grad(sum(again ? nn::checkpoint(part, x) : part(x)), {x}, recorded)[0];
    return grad(sum(square(slope)), {x, w});
  };
  const auto kept = penalty(false), recomputed = penalty(true);
  for (std::size_t i = 0; i < 2; ++i) expect_equal(recomputed[i], kept[i]);
}

TEST(SecondDerivatives, InsideACheckpointedPartAreRefused) {
  const Tensor x = random_leaf({3});
  const auto slope = [](const Tensor& z) { return grad(sum(tanh(z)), {z}, recorded)[0]; };
  try {
    (void)nn::checkpoint(slope, x);
    FAIL() << "not refused";
  } catch (const InvalidArgument& refusal) {
    EXPECT_THAT(refusal.what(), HasSubstr("autograd::grad inside a part of a forward"));
  }
  expect_equal(slope(x), 1.0 - square(tanh(x)));
}

TEST(SecondDerivatives, AreInTheDtypesOfOperandsUnderMixedPrecision) {
  manual_seed(5);
  Tensor x = randn({4, 16}).set_requires_grad(), w = randn({8, 16}).set_requires_grad();
  const auto penalty = [&](bool mixed) {
    w.set_grad({});
    const amp::Autocast scope(DType::bf16, {.enabled = mixed});
    const Tensor y = tanh(linear(x, w) * 0.2);
    const Tensor slope = grad(sum(y), {x}, recorded)[0];
    EXPECT_EQ(slope.dtype(), DType::f32);
    sum(square(slope)).backward();
    return w.grad().clone();
  };
  const Tensor expected = penalty(false), actual = penalty(true);
  EXPECT_EQ(actual.dtype(), DType::f32);
  expect_equal(actual, expected, 0.05 * amax(abs(expected)).item());
  EXPECT_GT(amax(abs(actual)).item(), 0.0);
}

TEST(SecondDerivatives, ArePartOfACapturedStep) {
  const Tensor w = random_leaf({3});
  StepGraph graph([&](std::span<const Tensor> inputs) {
    const Tensor x = inputs[0].detach().clone().set_requires_grad();
    const Tensor slope = grad(sum(exp(x * w)), {x}, recorded)[0];
    return grad(sum(square(slope)), {w});
  });
  for (int i = 1; i < 8; ++i) {
    const Tensor x = full({3}, 0.1 * i, in_f64);
    const Tensor e = exp(2.0 * x * w);
    expect_equal(graph({x})[0], 2.0 * w * e + 2.0 * x * square(w) * e);
  }
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
}

TEST(SecondDerivatives, AreSeenByHooksWithTheirGraph) {
  const Tensor x = random_leaf({3});
  x.register_hook([](const Tensor& dx) { return dx * dx; });
  const Tensor squared = grad(sum(exp(x)), {x}, recorded)[0];  // exp(2x)
  expect_equal(squared, exp(2.0 * x));
  EXPECT_TRUE(squared.requires_grad());
  const Tensor h = exp(x);
  h.register_hook([](const Tensor& dh) { return dh * 3.0; });
  const Tensor y = sum(square(h));
  // Both backwards arrive at h.
  expect_equal(grad(sum(grad(y, {h}, recorded)[0]), {h})[0], full({3}, 18.0, in_f64));
}

TEST(SecondDerivatives, LeaveNothingAlive) {
  const auto bytes = [] { return device_allocator(cpu).statistics().live_bytes; };
  const Tensor x = random_leaf({2, 3, 4, 4}), w = random_leaf({3});
  const auto run = [&](bool whole) {
    const Tensor y = relu(batch_norm(x, {}, {}, w, {}, {.training = true})) * sigmoid(x);
    const Tensor slope = grad(sum(softmax(max_pool2d(y, {.kernel = 2}), 1)), {x}, recorded)[0];
    if (whole) (void)grad(sum(square(slope)), {x, w}, {.retain_graph = true});
  };
  run(true);
  const auto before = bytes();
  run(true);
  EXPECT_EQ(bytes(), before);
  run(false);
  EXPECT_EQ(bytes(), before);
}

// What is no function of the inputs is an array of its own, that may be changed.
TEST(SecondDerivatives, OfWhatIsLinearAreConstants) {
  const Tensor x = random_leaf({3}), y = random_leaf({3});
  const auto slopes = grad(sum(x + y), {x, y}, recorded);
  for (const Tensor& slope : slopes) EXPECT_FALSE(slope.requires_grad());
  Tensor(slopes[0]).mul_(2.0);
  expect_equal(slopes[1], ones({3}, in_f64));
  expect_equal(grad({x}, {x}, {.grad_outputs = {y}, .create_graph = true})[0], y);
  // An output that is an input, beside others that depend on it, whichever comes first.
  const GradOptions twice{.grad_outputs = {y, y}, .retain_graph = true, .create_graph = true};
  expect_equal(grad({x, x * 2.0}, {x}, twice)[0], y * 3.0);
  expect_equal(grad({x * 2.0, x}, {x}, twice)[0], y * 3.0);
}

constexpr OpDescriptor cube_op{.name = "cube"};

/// An op of one's own, whose gradient is recorded or is not.
template <bool is_differentiable>
Tensor cube(const Tensor& x_in) {
  const OpCall call(cube_op, x_in);
  const Tensor y = no_grad([&] { return call[0] * call[0] * call[0]; });
  if (!call.recording()) return y;
  const auto backward = [x = SavedTensor(call[0])](const Tensor& dy, InputGradients& inputs) {
    inputs.set(0, dy * 3.0 * square(inputs.operand(0, x)));
  };
  if constexpr (is_differentiable)
    return call.record(y, Differentiable{backward});
  else
    return call.record(y, backward);
}

TEST(SecondDerivatives, OfOpsOfOnesOwnAreThere) {
  testing::expect_gradients([](const std::vector<Tensor>& in) { return cube<true>(in[0]); },
                            {randn({3}, in_f64)});
  const GradCheckResult second = grad_grad_check(
      [](const std::vector<Tensor>& in) { return cube<true>(exp(in[0])); }, {randn({3}, in_f64)});
  EXPECT_TRUE(second) << second.mismatch;
}

TEST(SecondDerivatives, ThatCannotBeHadAreRefusedByNameAndLoseNothing) {
  const Tensor x = random_leaf({3});
  const Tensor y = sum(cube<false>(x));
  try {
    (void)grad(y, {x}, recorded);
    FAIL() << "not refused";
  } catch (const Unsupported& refusal) {
    EXPECT_THAT(refusal.what(), HasSubstr("the gradient of cube cannot be differentiated"));
  }
  EXPECT_FALSE(x.grad().defined());
  y.backward();
  expect_equal(x.grad(), 3.0 * square(x));
}

// An op that says it can, and does not.
TEST(SecondDerivatives, ThatAreNotRecordedAreToldOf) {
  const auto square_by_hand = [](const Tensor& x_in, bool in_place) {
    const OpCall call(cube_op, x_in);
    const Tensor y = no_grad([&] { return square(call[0]); });
    const auto backward = [x = SavedTensor(call[0]), in_place](const Tensor& dy,
                                                               InputGradients& inputs) {
      const Tensor dx = no_grad([&] { return dy * x.get() * 2.0; });
      if (!in_place) return inputs.set(0, dx);
      inputs.write(0, dx.shape(), dx.options(),
                   [&](const Tensor& out, bool) { Tensor(out).copy_(dx); });
    };
    return call.record(y, Differentiable{backward});
  };
  for (const bool in_place : {false, true}) {
    const Tensor x = random_leaf({3});
    const Tensor y = sum(exp(square_by_hand(x, in_place)));
    try {
      (void)grad(y, {x}, recorded);
      FAIL() << "not told";
    } catch (const Unsupported& refusal) {
      EXPECT_THAT(refusal.what(), HasSubstr("backward of cube: it is Differentiable, but"));
    }
    expect_equal(grad(y, {x})[0], 2.0 * x * exp(square(x)));
  }
}

struct Critic : nn::Module {
  nn::Child<nn::Linear> hidden{this, "hidden", 3, 8}, out{this, "out", 8, 1};
  Tensor forward(const Tensor& x) { return out(tanh(hidden(x))); }
};

// The penalty through the module or its wrapper, the loss through the wrapper, in one backward.
TEST(SecondDerivatives, OfReplicasAreThoseOfOneProcess) {
  const auto rows = [](int rank) {
    Generator generator(static_cast<std::uint64_t>(rank + 1));
    return randn({4, 3}, {}, generator);
  };
  const auto loss_of = [](const Tensor& scores, auto& net, const Tensor& batch) {
    const Tensor x = batch.clone().set_requires_grad();
    const Tensor slope = grad(sum(net(x)), {x}, recorded)[0];
    return mean(scores) + 10.0 * mean(square(norm(slope, {1}) - 1.0));
  };
  const auto make = [] {
    manual_seed(1);
    return nn::make<Critic>();
  };
  const auto alone = make();
  const Tensor all = cat({rows(0), rows(1)}, 0);
  loss_of(alone(all), alone, all).backward();
  for (const int run : {0, 1, 2, 3, 4, 5}) {
    SCOPED_TRACE(run);
    const int stage = run % 3;
    const bool by_wrapper = run >= 3;
    comm::run_ranks(2, [&](comm::Communicator& world) {
      const CommunicatorPtr group(&world);
      const auto net = make();
      DistributedDataParallel<Critic> ddp(net, group, {.zero_stage = stage});
      optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.5});
      const Tensor batch = rows(group->rank());
      if (by_wrapper)
        loss_of(ddp(batch), ddp, batch).backward();
      else
        loss_of(ddp(batch), net, batch).backward();
      optimizer.step();
      const auto expected = alone->named_parameters();
      const auto actual = net->named_parameters();
      const auto before = make()->named_parameters();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const Tensor stepped = before[i].second.detach() - expected[i].second.grad() * 0.5;
        EXPECT_LE(max_abs_difference(actual[i].second.detach(), stepped), 1e-6) << actual[i].first;
      }
    });
  }
}

// Not recorded either, as long as the graph stays for the wrapper's backward.
TEST(GradThroughAWrapper, LeavesItsBackwardToCome) {
  manual_seed(1);
  const auto alone = nn::make<Critic>();
  const Tensor x = randn({4, 3}).set_requires_grad();
  const Tensor slope = grad(sum(alone(x)), {x})[0];
  mean(alone(x)).backward();
  comm::run_ranks(2, [&](comm::Communicator& world) {
    const auto net = nn::make<Critic>();
    net->load_state_dict(alone->state_dict());
    DistributedDataParallel<Critic> ddp(net, CommunicatorPtr(&world));
    const Tensor own = x.detach().clone().set_requires_grad();
    const Tensor y = ddp(own);
    EXPECT_THROW(grad(sum(y), {own}), InvalidArgument);
    expect_equal(grad(sum(y), {own}, {.retain_graph = true})[0], slope, 1e-6);
    EXPECT_FALSE(net->out->weight.grad().defined());
    mean(y).backward();
    expect_equal(net->out->weight.grad(), alone->out->weight.grad(), 1e-6);
  });
}

/// Energies, and the forces that they are the potential of.
struct Potential : nn::Module {
  nn::Child<nn::Linear> hidden{this, "hidden", 3, 8}, out{this, "out", 8, 1};
  std::pair<Tensor, Tensor> forward(const Tensor& positions) {
    const Tensor x = positions.detach().set_requires_grad();
    const Tensor energy = out(tanh(hidden(x)));
    return {energy, -grad(sum(energy), {x}, recorded)[0]};
  }
};

// In the forward of a wrapper, whose backward comes later.
TEST(SecondDerivatives, OfForcesInsideAForwardOfReplicasAreThoseOfOneProcess) {
  const auto positions_of = [](int rank) {
    Generator generator(static_cast<std::uint64_t>(rank + 1));
    return randn({4, 3}, {}, generator);
  };
  const auto loss_of = [](const std::pair<Tensor, Tensor>& result) {
    return mean(square(result.first - 1.0)) + mean(square(result.second - 0.5));
  };
  const auto make = [] {
    manual_seed(1);
    return nn::make<Potential>();
  };
  const auto alone = make();
  loss_of(alone->forward(cat({positions_of(0), positions_of(1)}, 0))).backward();
  const auto expected = alone->named_parameters();
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    comm::run_ranks(2, [&](comm::Communicator& world) {
      const CommunicatorPtr group(&world);
      const auto net = make();
      const auto before = make()->named_parameters();
      DistributedDataParallel<Potential> ddp(net, group, {.zero_stage = stage});
      optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.5});
      loss_of(ddp(positions_of(group->rank()))).backward();
      optimizer.step();
      const auto whole = ddp.whole_parameters();
      const auto actual = net->named_parameters();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const Tensor& gradient = expected[i].second.grad();
        if (!gradient.defined()) continue;
        const Tensor stepped = before[i].second.detach() - gradient * 0.5;
        EXPECT_LE(max_abs_difference(actual[i].second.detach(), stepped), 1e-6) << actual[i].first;
      }
    });
  }
}

}  // namespace
}  // namespace lockstep::autograd
