#include "arguments/recurrent.hpp"

#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

/// Arrays of one step: n sequences of h features, beyond what one vector and one block hold.
constexpr std::int64_t n = 5, h = 67;

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

class RecurrentContract : public ContractTest {
 protected:
  const kernels::RecurrentKernels& family() const { return backend().recurrent; }
  DeviceArray states(std::int64_t columns = h) const { return array({n, columns}); }
  DeviceArray cells() const { return array(statistics_dtype(), {n, h}); }
  /// The gate's value of element i of [n, h] among arrays [n, gates * h].
  static std::size_t at(std::size_t i, std::size_t gate, std::size_t gates) {
    return i / h * gates * h + gate * h + i % h;
  }
  /// The slope of a function at x.
  static double slope(const std::function<double(double)>& f, double x) {
    return (f(x + 1e-5) - f(x - 1e-5)) / 2e-5;
  }
  double allowed() const { return 1e-8 + 4 * tolerance(); }
};

TEST_P(RecurrentContract, LstmStepAndItsGradients) {
  const auto gates = states(4 * h).randomize(1, -3, 3), c_before = cells().randomize(2);
  const auto y = states(), c = cells();
  const Values before = gates.get(), old = c_before.get();
  family().lstm_cell({.h = y, .c = c, .gates = gates, .c_before = c_before}, stream());
  // The gates as functions of what they were computed from.
  const auto cell = [](double in, double forget, double update, double state) {
    return sigmoid_of(forget) * state + sigmoid_of(in) * std::tanh(update);
  };
  Values expected_h, expected_c, activated(before.size());
  for (std::size_t i = 0; i < old.size(); ++i) {
    const auto gate = [&](std::size_t g) { return before[at(i, g, 4)]; };
    expected_c.push_back(cell(gate(0), gate(1), gate(2), old[i]));
    expected_h.push_back(sigmoid_of(gate(3)) * std::tanh(expected_c.back()));
    for (const std::size_t g : {0u, 1u, 2u, 3u})
      activated[at(i, g, 4)] = g == 2 ? std::tanh(gate(g)) : sigmoid_of(gate(g));
  }
  EXPECT_TRUE(close(y.get(), expected_h, allowed()));
  EXPECT_TRUE(close(c.get(), expected_c, allowed()));
  EXPECT_TRUE(close(gates.get(), activated, allowed()));

  const auto dy = states().randomize(3), dh = states().randomize(4), dgates = states(4 * h);
  auto dc = cells().randomize(5);
  const Values from_c = dc.get(), from_y = dy.get(), from_h = dh.get();
  family().lstm_cell_backward({.dgates = dgates,
                               .dc = dc,
                               .dy = dy,
                               .dh = dh,
                               .gates = gates,
                               .c = c,
                               .c_before = c_before},
                              stream());
  Values expected(before.size()), expected_dc;
  for (std::size_t i = 0; i < old.size(); ++i) {
    const auto loss = [&](double a, double f, double g, double o, double state) {
      const double next = cell(a, f, g, state);
      return (from_y[i] + from_h[i]) * sigmoid_of(o) * std::tanh(next) + from_c[i] * next;
    };
    double p[] = {before[at(i, 0, 4)], before[at(i, 1, 4)], before[at(i, 2, 4)],
                  before[at(i, 3, 4)], old[i]};
    for (std::size_t k = 0; k < 5; ++k) {
      const double gradient = slope(
          [&](double x) {
            const double kept = std::exchange(p[k], x);
            const double value = loss(p[0], p[1], p[2], p[3], p[4]);
            p[k] = kept;
            return value;
          },
          p[k]);
      if (k < 4)
        expected[at(i, k, 4)] = gradient;
      else
        expected_dc.push_back(gradient);
    }
  }
  EXPECT_TRUE(close(dgates.get(), expected, 2 * allowed()));
  EXPECT_TRUE(close(dc.get(), expected_dc, 2 * allowed()));
}

TEST_P(RecurrentContract, GruStepAndItsGradients) {
  const auto gates = states(3 * h).randomize(1, -2, 2),
             recurrent = states(3 * h).randomize(2, -2, 2);
  const auto h_before = states().randomize(3), y = states(), candidate = states();
  const Values input = gates.get(), hidden = recurrent.get(), old = h_before.get();
  family().gru_cell({.h = y,
                     .gates = gates,
                     .candidate = candidate,
                     .recurrent = recurrent,
                     .h_before = h_before},
                    stream());
  const auto step = [](const double* p) {  // input's r, z, n, the state's r, z, n, the state
    const double fresh = std::tanh(p[2] + sigmoid_of(p[0] + p[3]) * p[5]);
    const double z = sigmoid_of(p[1] + p[4]);
    return (1 - z) * fresh + z * p[6];
  };
  const auto parts = [&](std::size_t i) {
    return std::array<double, 7>{input[at(i, 0, 3)],
                                 input[at(i, 1, 3)],
                                 input[at(i, 2, 3)],
                                 hidden[at(i, 0, 3)],
                                 hidden[at(i, 1, 3)],
                                 hidden[at(i, 2, 3)],
                                 old[i]};
  };
  Values expected_h, kept;
  for (std::size_t i = 0; i < old.size(); ++i) {
    expected_h.push_back(step(parts(i).data()));
    kept.push_back(hidden[at(i, 2, 3)]);
  }
  EXPECT_TRUE(close(y.get(), expected_h, allowed()));
  EXPECT_EQ(candidate.get(), kept);

  const auto dy = states().randomize(4), dgates = states(3 * h), drecurrent = states(3 * h);
  auto dh = states().randomize(5);
  const Values from_y = dy.get(), from_h = dh.get();
  family().gru_cell_backward({.dgates = dgates,
                              .drecurrent = drecurrent,
                              .dh_before = dh,
                              .dy = dy,
                              .dh = dh,
                              .gates = gates,
                              .candidate = candidate,
                              .h_before = h_before},
                             stream());
  Values expected_gates(input.size()), expected_recurrent(input.size()), expected_dh;
  for (std::size_t i = 0; i < old.size(); ++i)
    for (std::size_t k = 0; k < 7; ++k) {
      auto p = parts(i);
      const double gradient = (from_y[i] + from_h[i]) * slope(
                                                            [&](double x) {
                                                              p[k] = x;
                                                              return step(p.data());
                                                            },
                                                            p[k]);
      if (k < 3)
        expected_gates[at(i, k, 3)] = gradient;
      else if (k < 6)
        expected_recurrent[at(i, k - 3, 3)] = gradient;
      else
        expected_dh.push_back(gradient);
    }
  EXPECT_TRUE(close(dgates.get(), expected_gates, 4 * allowed()));
  EXPECT_TRUE(close(drecurrent.get(), expected_recurrent, 4 * allowed()));
  EXPECT_TRUE(close(dh.get(), expected_dh, 4 * allowed()));
}

TEST_P(RecurrentContract, TakesNoSequences) {
  const auto none = array({0, h}), gates = array({0, 4 * h});
  const auto c = array(statistics_dtype(), {0, h});
  family().lstm_cell({.h = none, .c = c, .gates = gates, .c_before = c}, stream());
  EXPECT_TRUE(none.get().empty());
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RecurrentContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
