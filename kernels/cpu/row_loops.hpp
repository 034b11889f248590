#pragma once

#include <cstddef>
#include <cstdint>

#include "arguments/recurrent.hpp"

/// @file
/// Loops over the rows of arrays, contiguous unless said otherwise. All work on rows or elements
/// [begin, end). Pointers to statistics and weights are in the accumulation type.

namespace lockstep::cpu_kernels {

/// Softmax and its backward.
struct SoftmaxRows {
  void* out = nullptr;
  const void* x = nullptr;   ///< forward
  const void* dy = nullptr;  ///< backward
  const void* y = nullptr;   ///< backward
  std::int64_t columns = 0;
  bool log = false;
  /// Rows that lie side by side, so that their elements are as far apart; work is then by part_rows
  /// of these rows, the last part of each such group being smaller.
  std::int64_t inner = 1;
  static constexpr std::int64_t part_rows = 128;
};

/// Cross-entropy, its backward, and both at once, which replaces the logits by their gradient.
struct CrossEntropyRows {
  const void* logits = nullptr;
  const std::int64_t* targets = nullptr;
  const void* weight = nullptr;  ///< may be null
  void* loss = nullptr;
  void* statistics = nullptr;  ///< each row's maximum and sum of exponentials
  void* row_weight = nullptr;
  void* dlogits = nullptr;
  const void* dloss = nullptr;
  std::int64_t dloss_stride = 0;
  std::int64_t classes = 0, ignore_index = -100;
  std::int64_t pitch = 0;    ///< from one row of logits (and of dlogits) to the next
  std::int64_t padding = 0;  ///< columns behind the classes that get a gradient of 0
  double smoothing = 0.0;
};

/// Layer norm, RMS norm and their backwards.
struct NormRows {
  void* y = nullptr;
  void* mean = nullptr;  ///< null for RMS norm
  void* rstd = nullptr;
  const void* x = nullptr;
  const void* weight = nullptr;  ///< may be null
  const void* bias = nullptr;    ///< may be null
  const void* dy = nullptr;
  void* dx = nullptr;       ///< may be null
  void* dweight = nullptr;  ///< sums, may be null
  void* dbias = nullptr;    ///< sums, may be null
  bool add_dx = false;      ///< to what is there
  std::int64_t columns = 0;
  double eps = 0.0;
};

/// Rotary position embedding of the heads at one position.
struct RotaryRows {
  void* y = nullptr;
  const void* x = nullptr;
  const void* cos = nullptr;
  const void* sin = nullptr;
  std::int64_t pairs = 0;
  std::int64_t y_stride = 0, x_stride = 0;  ///< from one head to the next, in elements
  bool inverse = false;
};

template <class Arguments>
using RowLoop = void (*)(const Arguments& arguments, std::int64_t begin, std::int64_t end);
struct OptimizerTable;  // cpu/optimizer_loops.hpp

/// Row loops by floating dtype (f64, f32, bf16, f16), norms also by that of the result (null where
/// it is not offered); and those of optimizers.
struct RowLoops {
  static constexpr std::size_t dtypes = 4;
  RowLoop<SoftmaxRows> softmax[dtypes] = {}, softmax_backward[dtypes] = {};
  RowLoop<CrossEntropyRows> cross_entropy[dtypes] = {}, cross_entropy_backward[dtypes] = {};
  RowLoop<CrossEntropyRows> cross_entropy_gradient[dtypes] = {};
  RowLoop<NormRows> layer_norm[dtypes][dtypes] = {}, layer_norm_backward[dtypes][dtypes] = {};
  RowLoop<NormRows> rms_norm[dtypes][dtypes] = {}, rms_norm_backward[dtypes][dtypes] = {};
  RowLoop<RotaryRows> rotary[dtypes] = {};
  RowLoop<kernels::LstmCellArguments> lstm_cell[dtypes] = {};
  RowLoop<kernels::LstmCellBackwardArguments> lstm_cell_backward[dtypes] = {};
  RowLoop<kernels::GruCellArguments> gru_cell[dtypes] = {};
  RowLoop<kernels::GruCellBackwardArguments> gru_cell_backward[dtypes] = {};
  const OptimizerTable* optimizers = nullptr;
  RowLoop<SoftmaxRows> inner_softmax[dtypes] = {}, inner_softmax_backward[dtypes] = {};
};

}  // namespace lockstep::cpu_kernels
