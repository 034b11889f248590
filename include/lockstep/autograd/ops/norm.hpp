#pragma once

#include <cstdint>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Normalisation, embedding and dropout.

namespace lockstep {

/// In which dtype a norm returns under mixed precision.
enum class NormResult : std::uint8_t {
  as_computed,  ///< f32
  /// In that of products, to which they would round it: for a result that products alone read. They
  /// compute the same, and a conversion is saved each way.
  for_products,
};

/// Normalises the last dimensions of x to mean 0 and variance 1, then scales and shifts
/// (Ba, Kiros and Hinton 2016).
/// @param normalized_shape the extents that are normalised together: the last ones of x.
/// @param weight, bias of normalized_shape; may be undefined.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5,
                  NormResult result = NormResult::as_computed);
/// Divides the last dimensions of x by their root mean square, then scales (Zhang and Sennrich
/// 2019).
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                double eps = 1e-6, NormResult result = NormResult::as_computed);
/// Normalises groups of channels of [N, C, ...] (Wu and He 2018).
Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

/// Options of `batch_norm`.
struct BatchNormOptions {
  bool training = false;  ///< use the batch's statistics and move the running ones
  double momentum = 0.1;  ///< share of the batch in the new running value
  double eps = 1e-5;
  bool relu = false;  ///< end with ReLU
};
/// Normalises each channel of [N, C, ...] (Ioffe and Szegedy 2015). A residual and ReLU, which
/// follow it in residual networks, may be part of the call: relu(normalised + residual) in one
/// pass over memory, in half precision without rounding in between.
/// @param running_mean, running_var [C], updated in place when training; may be undefined then.
/// @param weight, bias [C]; may be undefined.
/// @param residual of x's shape, dtype and device, added to the normalised values; may be
/// undefined.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight = {}, const Tensor& bias = {},
                  const BatchNormOptions& options = {}, const Tensor& residual = {});

/// Rows of a table: out[...] = table[index[...]].
/// @param index i64, any shape. @param table [rows, columns].
/// @param padding_index a row that gets no gradient; negative: none.
/// @throws InvalidArgument for an index out of range (on a CPU; on a GPU the row is NaN).
Tensor embedding(const Tensor& index, const Tensor& table, std::int64_t padding_index = -1);
/// addend + embedding(index, table, padding_index), in one pass over memory: tokens and their
/// places.
/// @param addend of the table's dtype; its shape is the end of the result's, and it is repeated.
/// @throws InvalidArgument as `embedding`, and for an addend that is undefined or does not fit.
Tensor add_embedding(const Tensor& addend, const Tensor& index, const Tensor& table,
                     std::int64_t padding_index = -1);

/// Zeroes elements with probability p and scales the rest by 1 / (1 - p), if `training`; draws from
/// the calling thread's generator.
Tensor dropout(const Tensor& x, double p, bool training = true);
/// The same for whole channels of [N, C, ...] (Tompson et al. 2015).
Tensor dropout2d(const Tensor& x, double p, bool training = true);

}  // namespace lockstep
