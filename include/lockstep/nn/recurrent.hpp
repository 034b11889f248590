#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/autograd/ops/recurrent.hpp"
#include "lockstep/nn/module.hpp"

/// @file
/// Recurrent layers. Names, order and initial values of the parameters are PyTorch's.

namespace lockstep::nn {

/// Options of LSTM and GRU.
struct RecurrentOptions {
  std::int64_t input_size = 0;   ///< features of the sequences
  std::int64_t hidden_size = 0;  ///< features of the state
  std::int64_t num_layers = 1;   ///< each runs over the states of the one before
  bool bias = true;
  bool batch_first = false;    ///< sequences are [N, T, features], else [T, N, features]
  double dropout = 0.0;        ///< in training, between the layers
  bool bidirectional = false;  ///< each layer also runs from the last step to the first
  TensorOptions tensor = {};   ///< dtype and device of the parameters
};

/// What LSTM and GRU share.
class Recurrent : public Module {
 public:
  using Options = RecurrentOptions;
  std::string describe() const override;
  /// What it was made from.
  const RecurrentOptions& options() const noexcept { return options_; }
  /// The weights of a layer; of its backward direction if `reverse`.
  const RecurrentWeights& weights(std::int64_t layer, bool reverse = false) const;

 protected:
  /// @throws InvalidArgument for sizes below 1 or a dropout outside [0, 1].
  Recurrent(const RecurrentOptions& options, std::int64_t gates);

  /// Runs one layer and direction: from a sequence [T, N, in] to its states [T, N, hidden].
  using RunLayer = FunctionRef<Tensor(const Tensor& x, std::int64_t index,
                                      const RecurrentWeights& weights, bool reverse)>;
  /// Runs all layers; `run` is told of the layer by its place in the states.
  /// @return the last layer's states, of both directions beside each other.
  Tensor run_layers(const Tensor& x, RunLayer run) const;
  /// The state with which a layer begins; undefined if the user gave none.
  static Tensor state_at(const Tensor& states, std::int64_t index);
  /// @throws InvalidArgument unless `states` are undefined or of the right shape for x.
  void check_states(const char* name, const Tensor& states, const Tensor& x) const;
  /// The last state of a sequence of states [T, N, hidden].
  static Tensor last_state(const Tensor& states, bool reverse);

 private:
  RecurrentOptions options_;
  std::vector<RecurrentWeights> weights_;  // layer by layer, forward before backward
};

/// Long short-term memory (Hochreiter and Schmidhuber 1997).
class LSTM : public Recurrent {
 public:
  /// @throws InvalidArgument for sizes below 1 or a dropout outside [0, 1].
  explicit LSTM(const RecurrentOptions& options) : Recurrent(options, 4) {}
  /// One layer.
  LSTM(std::int64_t input_size, std::int64_t hidden_size)
      : LSTM(RecurrentOptions{.input_size = input_size, .hidden_size = hidden_size}) {}

  /// States h and c of all layers: [layers * directions, N, hidden].
  using State = std::tuple<Tensor, Tensor>;
  /// @param x [T, N, input], or [N, T, input] if `batch_first`.
  /// @param state before the first step; undefined tensors: 0.
  /// @return (the last layer's h of all steps [T, N, directions * hidden], last h and c).
  std::tuple<Tensor, State> forward(const Tensor& x, const State& state = {}) const;
};

/// Gated recurrent units (Cho et al. 2014).
class GRU : public Recurrent {
 public:
  /// @throws InvalidArgument for sizes below 1 or a dropout outside [0, 1].
  explicit GRU(const RecurrentOptions& options) : Recurrent(options, 3) {}
  /// One layer.
  GRU(std::int64_t input_size, std::int64_t hidden_size)
      : GRU(RecurrentOptions{.input_size = input_size, .hidden_size = hidden_size}) {}

  /// @param x [T, N, input], or [N, T, input] if `batch_first`.
  /// @param state [layers * directions, N, hidden] before the first step; undefined: 0.
  /// @return (the last layer's h of all steps [T, N, directions * hidden], last h).
  std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& state = {}) const;
};

}  // namespace lockstep::nn
