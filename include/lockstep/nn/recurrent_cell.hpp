#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "lockstep/autograd/ops/recurrent.hpp"
#include "lockstep/nn/member.hpp"

/// @file
/// Single steps of recurrent layers. Names, order and initial values of the parameters are
/// PyTorch's.

namespace lockstep::nn {

/// Options of LSTMCell and GRUCell.
struct RecurrentCellOptions {
  std::int64_t input_size = 0;   ///< features of the input
  std::int64_t hidden_size = 0;  ///< features of the state
  bool bias = true;
  TensorOptions tensor = {};  ///< dtype and device of the parameters
};

/// What LSTMCell and GRUCell share.
class RecurrentCell : public Module {
 public:
  using Options = RecurrentCellOptions;
  std::string describe() const override;

 protected:
  /// @throws InvalidArgument for sizes below 1.
  RecurrentCell(const RecurrentCellOptions& options, std::int64_t gates);
  /// x as a sequence of one step. @throws InvalidArgument for another shape than [N, input].
  Tensor as_sequence(const Tensor& x) const;
  RecurrentWeights weights() const { return {weight_ih, weight_hh, bias_ih, bias_hh}; }

 public:
  Parameter weight_ih;  ///< [gates * hidden, input]
  Parameter weight_hh;  ///< [gates * hidden, hidden]
  Parameter bias_ih;    ///< [gates * hidden], or undefined
  Parameter bias_hh;    ///< [gates * hidden], or undefined
};

/// One step of LSTM. Over whole sequences, LSTM is one op, and keeps c of bf16 and f16 in f32
/// between the steps.
class LSTMCell : public RecurrentCell {
 public:
  /// @throws InvalidArgument for sizes below 1.
  explicit LSTMCell(const RecurrentCellOptions& options) : RecurrentCell(options, 4) {}
  /// With biases.
  LSTMCell(std::int64_t input_size, std::int64_t hidden_size)
      : LSTMCell(RecurrentCellOptions{.input_size = input_size, .hidden_size = hidden_size}) {}

  /// States h and c: [N, hidden].
  using State = std::tuple<Tensor, Tensor>;
  /// @param x [N, input]. @param state before the step; undefined tensors: 0. @return that behind.
  State forward(const Tensor& x, const State& state = {}) const;
};

/// One step of GRU.
class GRUCell : public RecurrentCell {
 public:
  /// @throws InvalidArgument for sizes below 1.
  explicit GRUCell(const RecurrentCellOptions& options) : RecurrentCell(options, 3) {}
  /// With biases.
  GRUCell(std::int64_t input_size, std::int64_t hidden_size)
      : GRUCell(RecurrentCellOptions{.input_size = input_size, .hidden_size = hidden_size}) {}

  /// @param x [N, input]. @param state [N, hidden] before the step; undefined: 0.
  /// @return the state behind it.
  Tensor forward(const Tensor& x, const Tensor& state = {}) const;
};

}  // namespace lockstep::nn
