#include <cmath>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/refusal.hpp"

// Optimizers that are given other options between steps.

namespace lockstep {
namespace {

TEST(Optimizer, TakesOtherOptionsBetweenSteps) {
  const auto trained = [](bool changes) {
    Tensor w = ones({2}, {DType::f64}).set_requires_grad();
    optim::AdamW optimizer({w}, {.lr = 0.1, .weight_decay = changes ? 0.01 : 0.5});
    if (changes) {
      optim::AdamWOptions options = optimizer.options();
      options.weight_decay = 0.5;
      optimizer.set_options(options);
    }
    w.set_grad(ones({2}, {DType::f64}));
    optimizer.step();
    return w.detach().clone();
  };
  EXPECT_TRUE(equal(trained(true), trained(false)));
}

TEST(Optimizer, GoesOnInItsScheduleUnderOtherOptions) {
  optim::AdamW optimizer({ones({2}).set_requires_grad()}, {.lr = 1});
  optim::LRScheduler scheduler(optimizer, optim::LinearLR{.start_factor = 0.5, .iterations = 4});
  scheduler.step();
  optim::AdamWOptions options = optimizer.options();
  options.weight_decay = 0.5;
  optimizer.set_options(options);
  EXPECT_EQ(optimizer.base_lr(), 1);
  options.lr = 2;
  optimizer.set_options(options);
  EXPECT_EQ(optimizer.base_lr(), 2);
}

TEST(Optimizer, SetsTheOptionsOfAGroupOrNothing) {
  const Tensor a = ones({2}).set_requires_grad(), b = ones({2}).set_requires_grad();
  optim::AdamW optimizer({{{a}, {.lr = 0.1}}, {{b}, {.lr = 0.2}}});
  optimizer.set_options({.lr = 0.3, .beta1 = 0.5}, 1);
  EXPECT_EQ(optimizer.lr(0), 0.1);
  EXPECT_EQ(optimizer.base_lr(1), 0.3);
  EXPECT_EQ(optimizer.options(1).beta1, 0.5);
  EXPECT_THROW(optimizer.set_options({.lr = 0.4}, 2), InvalidArgument);
  EXPECT_THROW(optimizer.set_options({.lr = 0.4, .beta1 = 1.5}, 1), InvalidArgument);
  for (const optim::AdamWOptions& kept :
       {optim::AdamWOptions{.lr = 0.4, .master_weights = false},
        optim::AdamWOptions{.lr = 0.4, .state_format = optim::StateFormat::bf16}}) {
    const std::string message = testing::refusal([&] { optimizer.set_options(kept, 1); });
    EXPECT_NE(message.find("which its states are kept by"), std::string::npos) << message;
  }
  EXPECT_EQ(optimizer.lr(1), 0.3);
  EXPECT_EQ(optimizer.options(1).beta1, 0.5);
}

constexpr double pull[] = {0.0, 1.0, 2.0};

/// Ten steps from 1 with the gradient w + i % 3, whose options change behind the fifth; `saves` a
/// state just then, which another optimizer goes on from.
template <class Kind>
double with_options_changed(const typename Kind::Options& first,
                            const typename Kind::Options& second, bool saves) {
  Tensor w = tensor<double>({1.0}).set_requires_grad();
  Kind former({w}, first), latter({w}, first);
  Kind* optimizer = &former;
  for (int i = 0; i < 10; ++i) {
    if (i == 5) {
      former.set_options(second);
      if (saves) {
        latter.load_state_dict(former.state_dict());
        optimizer = &latter;
      }
    }
    w.set_grad(w.detach() + pull[i % 3]);
    optimizer->step();
  }
  return w.item();
}

/// The same of RMSprop by its formulas.
double rmsprop_by_formulas(optim::RMSpropOptions o, const optim::RMSpropOptions& second) {
  double w = 1, square = 0, average = 0, momentum = 0;
  for (int i = 0; i < 10; ++i) {
    if (i == 5) o = second;
    const double g = w + pull[i % 3];
    square = o.alpha * square + (1 - o.alpha) * g * g;
    if (o.centered) average = o.alpha * average + (1 - o.alpha) * g;
    const double variance = o.centered ? square - average * average : square;
    const double direction = g / (std::sqrt(variance) + o.eps);
    if (o.momentum != 0) momentum = o.momentum * momentum + direction;
    w -= o.lr * (o.momentum != 0 ? momentum : direction);
  }
  return w;
}

TEST(Optimizer, KeepsStatesByTheirNamesUnderOtherOptions) {
  const optim::RMSpropOptions plain{.lr = 0.01, .alpha = 0.9};
  optim::RMSpropOptions centered = plain, heavy = plain, both = plain;
  centered.centered = both.centered = true;
  heavy.momentum = both.momentum = 0.9;
  for (const auto& [first, second] :
       {std::pair(heavy, both), {both, heavy}, {both, centered}, {plain, both}})
    for (const bool saves : {false, true})
      EXPECT_NEAR(with_options_changed<optim::RMSprop>(first, second, saves),
                  rmsprop_by_formulas(first, second), 1e-6);
}

TEST(Optimizer, BeginsAMomentumThatIsSwitchedOnAsTheGradient) {
  const optim::SGDOptions off{.lr = 0.1}, on{.lr = 0.1, .momentum = 0.9, .dampening = 0.5};
  double w = 1, momentum = 0;
  for (int i = 0; i < 10; ++i) {
    const double g = w + pull[i % 3];
    momentum = i < 6 ? g : 0.9 * momentum + 0.5 * g;
    w -= 0.1 * momentum;
  }
  for (const bool saves : {false, true})
    EXPECT_NEAR(with_options_changed<optim::SGD>(off, on, saves), w, 1e-6);
}

TEST(Optimizer, SavesTheMasterCopiesOfStepsCountedAnew) {
  const auto trained = [](bool saves) {
    Tensor w = ones({4}, {DType::bf16}).set_requires_grad();
    const optim::SGDOptions off{.lr = 1e-3}, on{.lr = 1e-3, .momentum = 0.9};
    optim::SGD former({w}, off), latter({w}, off);
    optim::SGD* optimizer = &former;
    for (int i = 0; i < 5; ++i) {  // steps too small for bf16 to hold
      if (i == 3) former.set_options(on);
      if (i == 3 && saves) {
        latter.load_state_dict(former.state_dict());
        optimizer = &latter;
      }
      w.set_grad(ones({4}, {DType::bf16}));
      optimizer->step();
    }
    return optimizer->parameter_states()[0].master.clone();
  };
  EXPECT_TRUE(equal(trained(true), trained(false)));
}

TEST(Optimizer, BeginsTheAdamWOfMuonAnew) {
  Tensor w = ones({4, 4}).set_requires_grad();
  const optim::MuonOptions hidden{.lr = 0.1, .weight_decay = 0};
  optim::MuonOptions other = hidden;
  other.adamw = true;
  optim::Muon optimizer({w}, hidden);
  w.set_grad(ones({4, 4}));
  optimizer.step();
  optimizer.set_options(other);
  const Tensor before = w.detach().clone();
  optimizer.step();
  EXPECT_TRUE(allclose(w.detach(), before - 0.1));  // the first step of Adam is the rate
  optimizer.set_options(hidden);
  EXPECT_FALSE(optimizer.parameter_states()[0].state[0].defined());
}

}  // namespace
}  // namespace lockstep
