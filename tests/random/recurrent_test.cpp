#include "lockstep/autograd/ops/recurrent.hpp"

#include "lockstep/autograd/engine.hpp"
#include "random/naive.hpp"

// Layers of LSTM and GRU on random shapes and memory layouts, against loops in double and their
// differences.

namespace lockstep::testing {
namespace {

using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

/// Operands of a layer: x, h, c (LSTM), weights of input and state, and their biases if there are.
struct Layer {
  std::int64_t gates, steps, sequences, in, features;
  bool reverse, biased;
  std::vector<Values> operands;

  bool lstm() const { return gates == 4; }
  std::size_t first_weight() const { return lstm() ? 3 : 2; }
  /// A row of a matrix times a vector, and the bias.
  double part(std::size_t weight, std::size_t bias, std::int64_t row, const double* vector,
              std::int64_t count) const {
    double sum = biased ? at(operands[bias], row) : 0;
    for (std::int64_t k = 0; k < count; ++k)
      sum += at(operands[weight], row * count + k) * vector[k];
    return sum;
  }

  /// The states of all steps, and the last c of an LSTM behind them.
  Values run() const {
    const std::size_t w = first_weight();
    Values h = operands[1], c = lstm() ? operands[2] : Values();
    Values results(static_cast<std::size_t>(steps * sequences * features));
    for (std::int64_t n = 0; n < steps; ++n) {
      const std::int64_t step = reverse ? steps - 1 - n : n;
      const Values before = h;
      for (std::int64_t row = 0; row < sequences; ++row)
        for (std::int64_t j = 0; j < features; ++j) {
          const double* const x = operands[0].data() + (step * sequences + row) * in;
          const double* const state = before.data() + row * features;
          const auto input = [&](std::int64_t gate) {
            return part(w, w + 2, gate * features + j, x, in);
          };
          const auto hidden = [&](std::int64_t gate) {
            return part(w + 1, w + 3, gate * features + j, state, features);
          };
          const auto open = [&](std::int64_t gate) {
            return sigmoid_of(input(gate) + hidden(gate));
          };
          double& next = h[static_cast<std::size_t>(row * features + j)];
          if (lstm()) {
            double& cell = c[static_cast<std::size_t>(row * features + j)];
            cell = open(1) * cell + open(0) * std::tanh(input(2) + hidden(2));
            next = open(3) * std::tanh(cell);
          } else {
            const double candidate = std::tanh(input(2) + open(0) * hidden(2)), z = open(1);
            next = (1 - z) * candidate + z * state[j];
          }
          results[static_cast<std::size_t>((step * sequences + row) * features + j)] = next;
        }
    }
    results.insert(results.end(), c.begin(), c.end());
    return results;
  }
};

/// Errors are measured against the largest value of a tensor, and 1: what is rounded are numbers
/// around 1, in every step.
Expected about_one(const Values& values) {
  double largest = 1;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  Expected expected;
  expected.values = values;
  expected.magnitudes = Values(values.size(), largest);
  return expected;
}

/// The gradients of an operand, by differences of sum(results * weights).
Values differences(Layer layer, std::size_t operand, const Values& weights) {
  const auto weighted = [&] {
    const Values results = layer.run();
    double sum = 0;
    for (std::size_t i = 0; i < results.size(); ++i) sum += results[i] * weights[i];
    return sum;
  };
  Values gradients;
  for (double& value : layer.operands[operand]) {
    const double before = value, h = 1e-5;
    value = before + h;
    const double above = weighted();
    value = before - h;
    gradients.push_back((above - weighted()) / (2 * h));
    value = before;
  }
  return gradients;
}

class RandomRecurrent : public RandomCases {
 protected:
  static AssertionResult check_case(RandomCase& c) {
    Layer layer{.gates = c.choose<std::int64_t>({3, 4}),
                .steps = c.integer(1, 4),
                .sequences = c.chance(0.03) ? 0 : c.integer(1, 4),
                .in = c.integer(1, 5),
                .features = c.integer(1, 5),
                .reverse = c.chance(0.4),
                .biased = c.chance(0.7),
                .operands = {}};
    c.note(layer.lstm() ? "lstm" : "gru", layer.reverse ? " reverse" : "");
    const Shape state{layer.sequences, layer.features};
    const std::int64_t wide = layer.gates * layer.features;
    std::vector<Shape> shapes{{layer.steps, layer.sequences, layer.in}, state};
    if (layer.lstm()) shapes.push_back(state);
    shapes.push_back({wide, layer.in});
    shapes.push_back({wide, layer.features});
    if (layer.biased) shapes.insert(shapes.end(), {Shape{wide}, Shape{wide}});
    std::vector<Tensor> leaves;
    for (const Shape& shape : shapes) {
      const RandomTensor drawn = c.tensor(shape);
      layer.operands.push_back(drawn.values);
      leaves.push_back(leaf(drawn));
    }
    return compare(c, layer, leaves);
  }

  static std::vector<Tensor> outputs_of(const Layer& layer, const std::vector<Tensor>& leaves) {
    const std::size_t w = layer.first_weight();
    RecurrentWeights weights{leaves[w], leaves[w + 1], {}, {}};
    if (layer.biased) weights.input_bias = leaves[w + 2], weights.hidden_bias = leaves[w + 3];
    if (!layer.lstm()) return {gru_layer(leaves[0], leaves[1], weights, layer.reverse)};
    const auto [y, c] = lstm_layer(leaves[0], leaves[1], leaves[2], weights, layer.reverse);
    return {y, c};
  }

  static AssertionResult compare(RandomCase& c, const Layer& layer,
                                 const std::vector<Tensor>& leaves) {
    const double allowed = 1e-8 + 12 * test::rounding(c.setting().dtype);
    const std::vector<Tensor> outputs = outputs_of(layer, leaves);
    const Values results = layer.run();
    Values weights;
    std::vector<Tensor> gradients;
    std::size_t first = 0;
    for (const Tensor& output : outputs) {
      const std::size_t end = first + static_cast<std::size_t>(output.numel());
      const Values part(results.begin() + static_cast<std::ptrdiff_t>(first),
                        results.begin() + static_cast<std::ptrdiff_t>(end));
      if (auto r = agrees(output, output.shape(), about_one(part), allowed); !r)
        return r << ": output " << gradients.size();
      const RandomTensor gradient = c.tensor(output.shape());
      weights.insert(weights.end(), gradient.values.begin(), gradient.values.end());
      gradients.push_back(gradient);
      first = end;
    }
    autograd::Engine::run(outputs, gradients, false);
    for (std::size_t i = 0; i < leaves.size(); ++i)
      if (auto r = agrees(leaves[i].grad(), leaves[i].shape(),
                          about_one(differences(layer, i, weights)), 4 * allowed);
          !r)
        return r << ": gradient of operand " << i;
    return AssertionSuccess();
  }
};

TEST_P(RandomRecurrent, AgreesWithLoops) { run_cases(60, check_case); }
TEST_P(RandomRecurrent, SlowAgreesWithLoops) { run_cases(6000, check_case); }

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomRecurrent,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
