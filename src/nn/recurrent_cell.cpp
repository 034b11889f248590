#include "lockstep/nn/recurrent_cell.hpp"

#include <cmath>

#include "lockstep/nn/init.hpp"
#include "lockstep/tensor/factories.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

/// A weight or a bias, uniform as those of the layers.
Tensor initial(const RecurrentCellOptions& options, const Shape& shape) {
  LOCKSTEP_CHECK(options.input_size > 0 && options.hidden_size > 0, InvalidArgument,
                 "a recurrent cell of ", options.input_size, " inputs and ", options.hidden_size,
                 " states: each must be at least 1");
  const double bound = 1.0 / std::sqrt(static_cast<double>(options.hidden_size));
  return init::uniform_(empty(shape, options.tensor), -bound, bound);
}

Tensor initial_bias(const RecurrentCellOptions& options, std::int64_t gates) {
  return options.bias ? initial(options, {gates * options.hidden_size}) : Tensor();
}

}  // namespace

RecurrentCell::RecurrentCell(const RecurrentCellOptions& options, std::int64_t gates)
    : weight_ih(this, "weight_ih",
                initial(options, {gates * options.hidden_size, options.input_size})),
      weight_hh(this, "weight_hh",
                initial(options, {gates * options.hidden_size, options.hidden_size})),
      bias_ih(this, "bias_ih", initial_bias(options, gates)),
      bias_hh(this, "bias_hh", initial_bias(options, gates)) {}

Tensor RecurrentCell::as_sequence(const Tensor& x) const {
  LOCKSTEP_CHECK(x.dim() == 2 && x.size(1) == weight_ih.size(1), InvalidArgument,
                 "a recurrent cell for inputs [N, ", weight_ih.size(1), "] got shape ", x.shape());
  return x.unsqueeze(0);
}

std::string RecurrentCell::describe() const {
  return text(weight_ih.size(1), ", ", weight_hh.size(1), bias_ih.defined() ? "" : ", no bias");
}

LSTMCell::State LSTMCell::forward(const Tensor& x, const State& state) const {
  const auto [steps, c] =
      lstm_layer(as_sequence(x), std::get<0>(state), std::get<1>(state), weights());
  return {steps.squeeze(0), c};
}

Tensor GRUCell::forward(const Tensor& x, const Tensor& state) const {
  return gru_layer(as_sequence(x), state, weights()).squeeze(0);
}

}  // namespace lockstep::nn
