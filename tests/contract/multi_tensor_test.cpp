#include "contract/multi_tensor.hpp"

#include <cmath>
#include <cstring>

namespace lockstep::test {
namespace {

/// For dtypes that are computed in a wider one.
class HalfMultiTensorContract : public MultiTensorContract {};

/// PyTorch's SGD for one element. @param step from 1.
void sgd_step(double& p, double g, double& m, const SgdRule& c, double lr, int step) {
  if (c.maximize) g = -g;
  g += c.weight_decay * p;
  if (c.momentum != 0) {
    m = step == 1 ? g : c.momentum * m + (1 - c.dampening) * g;
    g = c.nesterov ? g + c.momentum * m : m;
  }
  p -= lr * g;
}

/// PyTorch's Adam and AdamW for one element.
void adam_step(double& p, double g, double& m, double& v, double& top, const AdamRule& c, double lr,
               double step) {
  if (c.maximize) g = -g;
  if (c.decoupled_decay)
    p *= 1 - lr * c.weight_decay;
  else
    g += c.weight_decay * p;
  m = c.beta1 * m + (1 - c.beta1) * g;
  v = c.beta2 * v + (1 - c.beta2) * g * g;
  top = std::max(top, v);
  const double root = std::sqrt(c.amsgrad ? top : v) / std::sqrt(1 - std::pow(c.beta2, step));
  p -= lr / (1 - std::pow(c.beta1, step)) * m / (root + c.eps);
}

TEST_P(MultiTensorContract, SgdFollowsPyTorch) {
  const SgdRule cases[] = {
      {},
      {.momentum = 0.9, .dampening = 0.2, .weight_decay = 0.01, .maximize = true},
      {.momentum = 0.9, .weight_decay = 0.01, .nesterov = true}};
  const auto lr = number(0.1);
  for (const SgdRule& rule : cases) {
    const auto p = array({count}).randomize(1), m = zeros(), steps = steps_made(0);
    for (int step = 1; step <= 3; ++step) {
      SgdArguments c{.state = {.lr = in_memory(lr)}, .rule = rule};
      const auto g = array({count}).randomize(static_cast<unsigned>(10 + step));
      Values expected = p.get(), momentum = m.get();
      const Values gradient = g.get();
      for (std::size_t i = 0; i < expected.size(); ++i)
        sgd_step(expected[i], gradient[i], momentum[i], rule, 0.1, step);
      const OptimizerTensors item = tensors(p, g, m, steps);
      c.tensors = {&item, 1};
      optimizers().sgd(c, stream());
      EXPECT_TRUE(close(p.get(), expected, tolerance(2))) << step;
      EXPECT_EQ(steps.get(), (Values{static_cast<double>(step), 0}));
      if (rule.momentum == 0) continue;
      EXPECT_TRUE(close(m.get(), momentum, tolerance(2))) << step;
    }
  }
}

TEST_P(MultiTensorContract, AdamFollowsPyTorch) {
  for (int bits = 0; bits < 8; ++bits) {
    const auto p = array({count}).randomize(1), m = zeros(), v = zeros(), top = zeros();
    const auto lr = number(0.01), steps = steps_made(0);
    for (int step = 1; step <= 3; ++step) {
      AdamArguments c{.state = {.lr = in_memory(lr)},
                      .rule = {.beta1 = 0.9,
                               .beta2 = 0.95,
                               .eps = 1e-8,
                               .weight_decay = 0.1,
                               .decoupled_decay = (bits & 1) != 0,
                               .amsgrad = (bits & 2) != 0,
                               .maximize = (bits & 4) != 0}};
      const auto g = array({count}).randomize(static_cast<unsigned>(10 + step), 0.1, 1.0);
      Values expected = p.get(), first = m.get(), second = v.get(), largest = top.get();
      const Values gradient = g.get();
      for (std::size_t i = 0; i < expected.size(); ++i)
        adam_step(expected[i], gradient[i], first[i], second[i], largest[i], c.rule, 0.01, step);
      OptimizerTensors item = tensors(p, g, m, steps);
      item.state2 = flat(v);
      if (c.rule.amsgrad) item.state3 = flat(top);
      c.tensors = {&item, 1};
      optimizers().adam(c, stream());
      EXPECT_TRUE(close(p.get(), expected, tolerance(4))) << bits << ' ' << step;
      EXPECT_TRUE(close(m.get(), first, tolerance(4))) << bits << ' ' << step;
      EXPECT_TRUE(close(v.get(), second, tolerance(4))) << bits << ' ' << step;
    }
  }
}

constexpr AdamArguments plain_adam{.rule = {.weight_decay = 0.01, .decoupled_decay = true}};

TEST_P(HalfMultiTensorContract, UpdatesTheMasterCopyAndRoundsTheParameterFromIt) {
  const auto p = array({count}).randomize(1), q = array({count}).set(p.get());
  const auto main = master(p), plain = array({count}).set(p.get());
  const auto m = zeros(), v = zeros(), m2 = zeros(), v2 = zeros();
  const auto lr = number(1e-3), steps = steps_made(0), steps2 = steps_made(0);
  for (int step = 1; step <= 4; ++step) {
    AdamArguments c = plain_adam;
    c.state.lr = in_memory(lr);
    const auto g = array({count}).randomize(static_cast<unsigned>(10 + step), 0.1, 1.0);
    Values expected = main.get(), first = m.get(), second = v.get(), unused = first;
    const Values gradient = g.get();
    for (std::size_t i = 0; i < expected.size(); ++i)
      adam_step(expected[i], gradient[i], first[i], second[i], unused[i], c.rule, 1e-3, step);
    // One with a master copy beside one without, as lists of a model may have them.
    OptimizerTensors items[] = {tensors(p, g, m, steps), tensors(plain, g, m2, steps2)};
    items[0].master = flat(main);
    items[0].state2 = flat(v);
    items[1].state2 = flat(v2);
    c.tensors = items;
    optimizers().adam(c, stream());
    EXPECT_TRUE(close(main.get(), expected, 1e-6)) << step;
    EXPECT_EQ(p.get(), array({count}).set(main.get()).get()) << step;
    EXPECT_EQ(v.get(), v2.get()) << step;
  }
  EXPECT_NE(p.get(), q.get());
}

TEST_P(HalfMultiTensorContract, RefusesStatesInF16) {
  const auto p = array({count}).randomize(1), g = array({count}).randomize(2);
  const auto lr = number(1e-3), steps = steps_made(0), squares = array(DType::f64, {2});
  const auto m = array(DType::f16, {count}).set(Values(count, 0.0));
  OptimizerTensors item = tensors(p, g, m, steps);
  item.state2 = flat(m);
  AdamArguments c = plain_adam;
  c.state.lr = in_memory(lr);
  c.tensors = {&item, 1};
  EXPECT_THROW(optimizers().adam(c, stream()), InvalidArgument);
  kernels::OptimizerArguments<LambRule> by_layer{
      .tensors = {&item, 1},
      .state = {.lr = in_memory(lr)},
      .squares = static_cast<double*>(squares.view().data)};
  EXPECT_THROW(optimizers().lamb_measure(by_layer, stream()), InvalidArgument);
  EXPECT_THROW(optimizers().lamb(by_layer, stream()), InvalidArgument);
}

TEST_P(MultiTensorContract, RefusesToStepOnArraysOfSeveralSizes) {
  const auto p = array({count}).randomize(1), g = array({count - 1}).randomize(2), m = zeros();
  const auto lr = number(1e-3), steps = steps_made(0);
  const OptimizerTensors item = tensors(p, g, m, steps);
  EXPECT_THROW(optimizers().sgd({.tensors = {&item, 1}, .state = {.lr = in_memory(lr)}}, stream()),
               InvalidArgument);
}

TEST_P(MultiTensorContract, RefusesToStepWhereAStateOfTheRuleIsAbsent) {
  const auto p = array({count}).randomize(1), g = array({count}).randomize(2), m = zeros();
  const auto lr = number(1e-3), steps = steps_made(0);
  const OptimizerTensors item = tensors(p, g, m, steps);
  AdamArguments c = plain_adam;
  c.state.lr = in_memory(lr);
  c.tensors = {&item, 1};
  EXPECT_THROW(optimizers().adam(c, stream()), InvalidArgument);
}

// What is queued once may run many times: it finds each step's own rate and count.
TEST_P(MultiTensorContract, RateAndCountsAreReadFromMemoryForEachTensorOfItsOwn) {
  const auto p = array({count}).randomize(1), q = array({count}).set(p.get());
  const auto g = array({count}).randomize(2, 0.1, 1.0);
  const auto m = zeros(), v = zeros(), m2 = zeros(), v2 = zeros();
  auto lr = number(0.01);
  const auto young = steps_made(0), old = steps_made(10);
  OptimizerTensors items[] = {tensors(p, g, m, young), tensors(q, g, m2, old)};
  items[0].state2 = flat(v);
  items[1].state2 = flat(v2);
  const AdamArguments c{.tensors = items, .state = {.lr = in_memory(lr)}};
  for (int run = 1; run <= 2; ++run) {
    const double rate = run == 1 ? 0.01 : 0.5;
    lr.set({rate});
    const Values gradient = g.get();
    Values expected[] = {p.get(), q.get()}, first[] = {m.get(), m2.get()},
           second[] = {v.get(), v2.get()};
    double unused = 0;
    for (std::size_t k = 0; k < 2; ++k)
      for (std::size_t i = 0; i < gradient.size(); ++i)
        adam_step(expected[k][i], gradient[i], first[k][i], second[k][i], unused, c.rule, rate,
                  run + (k == 1 ? 10 : 0));
    optimizers().adam(c, stream());
    EXPECT_TRUE(close(p.get(), expected[0], tolerance(4))) << run;
    EXPECT_TRUE(close(q.get(), expected[1], tolerance(4))) << run;
  }
  EXPECT_EQ(young.get(), (Values{2, 0}));
  EXPECT_EQ(old.get(), (Values{12, 0}));
}

TEST_P(MultiTensorContract, AStepOnGradientsThatAreNotFiniteChangesAndCountsNothing) {
  const auto p = array({count}).randomize(1), g = array({count}).randomize(2);
  const auto m = zeros(), v = zeros(), lr = number(0.1), steps = steps_made(3);
  auto found_inf = number(1);
  const Values before = p.get();
  OptimizerTensors item = tensors(p, g, m, steps);
  item.state2 = flat(v);
  const kernels::StepState state{.lr = in_memory(lr), .found_inf = in_memory(found_inf)};
  const AdamArguments adam{.tensors = {&item, 1}, .state = state};
  const SgdArguments sgd{.tensors = {&item, 1}, .state = state, .rule = {.momentum = 0.9}};
  optimizers().adam(adam, stream());
  optimizers().sgd(sgd, stream());
  EXPECT_EQ(p.get(), before);
  EXPECT_EQ(m.get(), zeros().get());
  EXPECT_EQ(steps.get(), (Values{3, 0}));
  found_inf.set({0});
  optimizers().sgd(sgd, stream());
  EXPECT_NE(p.get(), before);
  EXPECT_EQ(steps.get(), (Values{4, 0}));
}

TEST_P(MultiTensorContract, TheLossScaleIsTakenOffTheGradients) {
  const auto g = array({count}).randomize(2, 0.1, 1.0);
  Values scaled = g.get();
  for (double& value : scaled) value *= 1024;  // a power of two: no dtype rounds it
  const auto h = array({count}).set(scaled), lr = number(0.1), scale = number(1024);
  Values results[2];
  for (const bool is_scaled : {false, true}) {
    const auto p = array({count}).randomize(1), m = zeros(), v = zeros(), steps = steps_made(0);
    OptimizerTensors item = tensors(p, is_scaled ? h : g, m, steps);
    item.state2 = flat(v);
    optimizers().adam(
        {.tensors = {&item, 1},
         .state = {.lr = in_memory(lr), .loss_scale = is_scaled ? in_memory(scale) : nullptr}},
        stream());
    results[is_scaled] = p.get();
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(MultiTensorContract, DividesAllByANumberInMemoryAndSumsTheSquaresOfThat) {
  const auto a = array({count}).randomize(1), b = array({7}).randomize(2);
  Values expected_a = a.get(), expected_b = b.get();
  for (double& value : expected_a) value /= 8;  // no dtype rounds it
  for (double& value : expected_b) value /= 8;
  double square_sum = 0;
  for (const Values* each : {&expected_a, &expected_b})
    for (const double value : *each) square_sum += value * value;
  const auto divisor = number(8), total = array(DType::f64, {2});
  const ArrayView arrays[] = {a, b};
  family().divide({.arrays = arrays, .divisor = divisor, .square_sum = total}, stream());
  EXPECT_TRUE(close(a.get(), expected_a, tolerance(0)));
  EXPECT_TRUE(close(b.get(), expected_b, tolerance(0)));
  EXPECT_NEAR(total.get()[0], square_sum, 1e-6 * square_sum);
}

TEST_P(MultiTensorContract, TheLossScaleGrowsAfterFiniteStepsAndFallsAfterOthers) {
  const auto scale = number(4);
  const auto finite = array(DType::i64, {1}).set({0}), skipped = array(DType::i64, {1}).set({0});
  auto found_inf = number(0);
  const auto step = [&](double found) {
    found_inf.set({found});
    family().update_loss_scale({.scale = scale,
                                .finite_steps = finite,
                                .skipped_steps = skipped,
                                .found_inf = found_inf,
                                .rule = {.growth_interval = 2}},
                               stream());
    return Values{scale.get()[0], finite.get()[0], skipped.get()[0]};
  };
  EXPECT_EQ(step(0), (Values{4, 1, 0}));
  EXPECT_EQ(step(0), (Values{8, 0, 0}));
  EXPECT_EQ(step(0), (Values{8, 1, 0}));
  EXPECT_EQ(step(1), (Values{4, 0, 1}));
  EXPECT_EQ(step(1), (Values{2, 0, 2}));
  EXPECT_EQ(step(0), (Values{2, 1, 0}));
}

// On a GPU more than one launch takes.
TEST_P(MultiTensorContract, ListsMayBeOfAnyLength) {
  constexpr int tensors = 450;
  const auto lr = number(0.5);
  std::vector<DeviceArray> parameters, gradients, counters;
  std::vector<OptimizerTensors> items;
  for (int i = 0; i < tensors; ++i) {
    parameters.push_back(array({3}).set({1, 2, 4}));
    gradients.push_back(array({3}).set({1, 1, i % 2 == 0 ? 2.0 : 4.0}));
    counters.push_back(steps_made(i));
    items.push_back({.parameter = flat(parameters.back()),
                     .gradient = flat(gradients.back()),
                     .counter = static_cast<kernels::StepCounter*>(counters.back().view().data)});
  }
  optimizers().sgd({.tensors = items, .state = {.lr = in_memory(lr)}}, stream());
  for (int i = 0; i < tensors; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(parameters[at].get(), (Values{0.5, 1.5, i % 2 == 0 ? 3.0 : 2.0})) << i;
    EXPECT_EQ(counters[at].get(), (Values{i + 1.0, 0})) << i;
  }
}

TEST_P(MultiTensorContract, AveragesMoveTowardsTheirValues) {
  const std::int64_t sizes[] = {70001, 0, 5};
  std::vector<DeviceArray> averages, values;
  for (const std::int64_t size : sizes) {
    averages.push_back(array(statistics_dtype(), {size}).randomize(1));
    values.push_back(array({size}).randomize(2));
  }
  const std::vector<ArrayView> to(averages.begin(), averages.end());
  const std::vector<ArrayView> from(values.begin(), values.end());
  std::vector<Values> expected;
  for (std::size_t i = 0; i < averages.size(); ++i) {
    expected.push_back(averages[i].get());
    const Values towards = values[i].get();
    for (std::size_t k = 0; k < towards.size(); ++k)
      expected[i][k] += 0.25 * (towards[k] - expected[i][k]);
  }
  family().average({.averages = to, .values = from, .share = 0.25}, stream());
  for (std::size_t i = 0; i < averages.size(); ++i)
    EXPECT_TRUE(close(averages[i].get(), expected[i], 1e-6)) << i;
  EXPECT_THROW(family().average({.averages = {to.data(), 1}, .values = {&from[2], 1}}, stream()),
               InvalidArgument);
}

TEST_P(MultiTensorContract, RoundsAsOneByOne) {
  if (dtype() != DType::bf16 && dtype() != DType::f16) return;
  const std::int64_t sizes[] = {70001, 0, 5, 64};
  std::vector<DeviceArray> outs, ins;
  for (const std::int64_t size : sizes) {
    ins.push_back(array(DType::f32, {size}).randomize(3, -9, 9));
    outs.push_back(array({size}));
  }
  const std::vector<ArrayView> to(outs.begin(), outs.end()), from(ins.begin(), ins.end());
  family().round({.outs = to, .ins = from}, stream());
  for (std::size_t i = 0; i < outs.size(); ++i)
    EXPECT_EQ(outs[i].get(), array({sizes[i]}).set(ins[i].get()).get()) << i;
  family().round({}, stream());
  EXPECT_THROW(family().round({.outs = {to.data(), 1}, .ins = {&from[2], 1}}, stream()),
               InvalidArgument);
  EXPECT_THROW(family().round({.outs = from, .ins = from}, stream()), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, MultiTensorContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);
INSTANTIATE_TEST_SUITE_P(Backends, HalfMultiTensorContract,
                         ::testing::ValuesIn(targets({DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
