#pragma once

#include <utility>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Recurrent layers. `nn::LSTM` and `nn::GRU` stack them.

namespace lockstep {

/// Weights of one recurrent layer; the gates lie behind one another along the first dimension, in
/// PyTorch's order. For g gates of h features:
struct RecurrentWeights {
  Tensor input;        ///< [g h, in] "weight_ih"
  Tensor hidden;       ///< [g h, h] "weight_hh"
  Tensor input_bias;   ///< [g h] "bias_ih"; both biases or none
  Tensor hidden_bias;  ///< [g h] "bias_hh"
};

/// One layer of a long short-term memory, over the steps of x in order, or from the last to the
/// first (Hochreiter and Schmidhuber 1997). Gates: input, forget, cell, output.
/// @param x [T, N, in], T at least 1. @param h, c [N, h], the states before; undefined: 0.
/// @return the states h of all steps [T, N, h], and the last c [N, h]. bf16 and f16 keep c in f32
/// between the steps.
/// @throws InvalidArgument for shapes that do not fit.
std::pair<Tensor, Tensor> lstm_layer(const Tensor& x, const Tensor& h, const Tensor& c,
                                     const RecurrentWeights& weights, bool reverse = false);

/// One layer of gated recurrent units (Cho et al. 2014). Gates: reset, update, new; the reset gate
/// is applied behind the recurrent product and its bias.
/// @param x [T, N, in], T at least 1. @param h [N, h], the state before; undefined: 0.
/// @return the states of all steps [T, N, h].
/// @throws InvalidArgument for shapes that do not fit.
Tensor gru_layer(const Tensor& x, const Tensor& h, const RecurrentWeights& weights,
                 bool reverse = false);

}  // namespace lockstep
