#pragma once

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// The elementwise part of one step of recurrent layers: n sequences of h features. All arrays are
/// contiguous; cell states are f32, or f64 where the data is f64.

namespace lockstep::kernels {

/// c = f c_before + i g, h = o tanh(c).
struct LstmCellArguments {
  ArrayView h = {};         ///< [n, h]
  ArrayView c = {};         ///< [n, h]
  ArrayView gates = {};     ///< [n, 4 h]: i, f, g and o before their activation, then after it
  ArrayView c_before = {};  ///< [n, h]
};

/// Gradients of a step of an LSTM, whose result's gradient is dy + dh.
struct LstmCellBackwardArguments {
  ArrayView dgates = {};       ///< [n, 4 h] of what the activations were applied to
  ArrayView dc = {};           ///< [n, h] of c, replaced by that of c_before
  ArrayView dy = {}, dh = {};  ///< [n, h]; each may be absent
  ArrayView gates = {};        ///< after their activation
  ArrayView c = {}, c_before = {};
};

/// r, z = sigmoid(gates + recurrent), n = tanh(gates + r recurrent), h = (1 - z) n + z h_before.
struct GruCellArguments {
  ArrayView h = {};          ///< [n, h]
  ArrayView gates = {};      ///< [n, 3 h]: the input's part of r, z and n, then their values
  ArrayView candidate = {};  ///< [n, h] the recurrent part of n, kept for backward
  ArrayView recurrent = {};  ///< [n, 3 h]: the part of h_before
  ArrayView h_before = {};   ///< [n, h]
};

/// Gradients of a step of a GRU, whose result's gradient is dy + dh.
struct GruCellBackwardArguments {
  ArrayView dgates = {}, drecurrent = {};  ///< [n, 3 h]
  ArrayView dh_before = {};                ///< [n, h] what does not pass through `recurrent`
  ArrayView dy = {}, dh = {};              ///< [n, h]; each may be absent; `dh` may be `dh_before`
  ArrayView gates = {};                    ///< after their activation
  ArrayView candidate = {}, h_before = {};
};

}  // namespace lockstep::kernels

/// Recurrent cells of one backend. Work runs in the order of the stream.
#define LOCKSTEP_RECURRENT_KERNELS(KERNEL)              \
  KERNEL(lstm_cell, LstmCellArguments)                  \
  KERNEL(lstm_cell_backward, LstmCellBackwardArguments) \
  KERNEL(gru_cell, GruCellArguments)                    \
  KERNEL(gru_cell_backward, GruCellBackwardArguments)
LOCKSTEP_KERNEL_FAMILY(recurrent, RecurrentKernels, LOCKSTEP_RECURRENT_KERNELS)
