#include "lockstep/nn/recurrent.hpp"

#include <cmath>

#include "lockstep/autograd/ops/norm.hpp"
#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/nn/init.hpp"
#include "lockstep/tensor/factories.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

const RecurrentOptions& checked(const RecurrentOptions& options) {
  LOCKSTEP_CHECK(options.input_size > 0 && options.hidden_size > 0 && options.num_layers > 0,
                 InvalidArgument, "a recurrent layer of ", options.input_size, " inputs, ",
                 options.hidden_size, " states and ", options.num_layers,
                 " layers: each must be at least 1");
  LOCKSTEP_CHECK(options.dropout >= 0 && options.dropout <= 1, InvalidArgument,
                 "a recurrent layer's dropout ", options.dropout, " is outside [0, 1]");
  return options;
}

std::int64_t directions_of(const RecurrentOptions& options) {
  return options.bidirectional ? 2 : 1;
}

/// The sequence with its steps first.
Tensor steps_first(const Tensor& x, bool batch_first) {
  return batch_first ? x.transpose(0, 1) : x;
}

}  // namespace

Recurrent::Recurrent(const RecurrentOptions& options, std::int64_t gates)
    : options_(checked(options)) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(options.hidden_size));
  const std::int64_t wide = gates * options.hidden_size, directions = directions_of(options);
  for (std::int64_t layer = 0; layer < options.num_layers; ++layer)
    for (std::int64_t direction = 0; direction < directions; ++direction) {
      const auto parameter = [&](const char* name, const Shape& shape) {
        return register_parameter(text(name, "_l", layer, direction ? "_reverse" : ""),
                                  init::uniform_(empty(shape, options.tensor), -bound, bound));
      };
      const std::int64_t in = layer == 0 ? options.input_size : directions * options.hidden_size;
      RecurrentWeights& weights = weights_.emplace_back();
      weights.input = parameter("weight_ih", {wide, in});
      weights.hidden = parameter("weight_hh", {wide, options.hidden_size});
      if (!options.bias) continue;
      weights.input_bias = parameter("bias_ih", {wide});
      weights.hidden_bias = parameter("bias_hh", {wide});
    }
}

const RecurrentWeights& Recurrent::weights(std::int64_t layer, bool reverse) const {
  LOCKSTEP_CHECK(layer >= 0 && layer < options_.num_layers && (!reverse || options_.bidirectional),
                 InvalidArgument, "no weights of layer ", layer, reverse ? ", reverse" : "",
                 ": there are ", options_.num_layers, " layers of ", directions_of(options_),
                 " direction(s)");
  return weights_[static_cast<std::size_t>(layer * directions_of(options_) + (reverse ? 1 : 0))];
}

Tensor Recurrent::run_layers(const Tensor& x, RunLayer run) const {
  LOCKSTEP_CHECK(x.dim() == 3 && x.size(2) == options_.input_size, InvalidArgument,
                 "a recurrent layer for sequences ", options_.batch_first ? "[N, T, " : "[T, N, ",
                 options_.input_size, "] got shape ", x.shape());
  Tensor sequence = steps_first(x, options_.batch_first);
  const std::int64_t directions = directions_of(options_);
  for (std::int64_t layer = 0; layer < options_.num_layers; ++layer) {
    if (layer > 0) sequence = dropout(sequence, options_.dropout, is_training());
    const auto states = [&](bool reverse) {
      return run(sequence, layer * directions + (reverse ? 1 : 0), weights(layer, reverse),
                 reverse);
    };
    sequence = options_.bidirectional ? cat({states(false), states(true)}, 2) : states(false);
  }
  return steps_first(sequence, options_.batch_first);
}

Tensor Recurrent::state_at(const Tensor& states, std::int64_t index) {
  return states.defined() ? states.select(0, index) : states;
}

void Recurrent::check_states(const char* name, const Tensor& states, const Tensor& x) const {
  if (!states.defined() || x.dim() != 3) return;
  const Shape expected{options_.num_layers * directions_of(options_),
                       x.size(options_.batch_first ? 0 : 1), options_.hidden_size};
  LOCKSTEP_CHECK(states.shape() == expected, InvalidArgument, "a recurrent layer's first states ",
                 name, " have shape ", states.shape(), ", expected ", expected,
                 " (layers * directions, N, hidden)");
}

Tensor Recurrent::last_state(const Tensor& states, bool reverse) {
  return states.select(0, reverse ? 0 : -1);
}

std::string Recurrent::describe() const {
  std::string result = text(options_.input_size, ", ", options_.hidden_size);
  if (options_.num_layers != 1) result += text(", layers=", options_.num_layers);
  if (!options_.bias) result += ", no bias";
  if (options_.batch_first) result += ", batch first";
  if (options_.dropout != 0) result += text(", dropout=", options_.dropout);
  if (options_.bidirectional) result += ", bidirectional";
  return result;
}

std::tuple<Tensor, LSTM::State> LSTM::forward(const Tensor& x, const State& state) const {
  const auto& [h, c] = state;
  check_states("h", h, x);
  check_states("c", c, x);
  std::vector<Tensor> last_h, last_c;
  const Tensor y = run_layers(x, [&](const Tensor& sequence, std::int64_t index,
                                     const RecurrentWeights& weights, bool reverse) {
    const auto [states, last] =
        lstm_layer(sequence, state_at(h, index), state_at(c, index), weights, reverse);
    last_h.push_back(last_state(states, reverse));
    last_c.push_back(last);
    return states;
  });
  return {y, {stack(last_h), stack(last_c)}};
}

std::tuple<Tensor, Tensor> GRU::forward(const Tensor& x, const Tensor& state) const {
  check_states("h", state, x);
  std::vector<Tensor> last_h;
  const Tensor y = run_layers(x, [&](const Tensor& sequence, std::int64_t index,
                                     const RecurrentWeights& weights, bool reverse) {
    const Tensor states = gru_layer(sequence, state_at(state, index), weights, reverse);
    last_h.push_back(last_state(states, reverse));
    return states;
  });
  return {y, stack(last_h)};
}

}  // namespace lockstep::nn
