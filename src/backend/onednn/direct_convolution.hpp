#pragma once
#include "arguments/convolution.hpp"
#include "backend/onednn/primitive_cache.hpp"

/// @file
/// Convolutions by oneDNN's direct code, or over Winograd's tiles, in the memory order that it
/// prefers (docs/adr/0033-winograd.md).

namespace lockstep::backend {

/// The operands of one call. Gradients stand where what they belong to does.
struct ConvolutionCall {
  ArrayView x, weight, y, bias;
  kernels::ConvGeometry geometry;
  bool writes_weight = false;

  /// False where only the `cpu` backend can run it: other dtypes, orders, or operands that do not
  /// fit.
  bool normalise();
  dnn::Key key(std::int64_t operation) const;
  /// Whether the weight is 1 x 1, in one group.
  bool is_of_points() const;
  /// The same of all points of the image, and no others: a matrix product.
  bool is_of_all_points() const;
  /// Weights with the group as a dimension of its own, where there are several.
  ArrayView grouped_weight() const;

 private:
  bool outputs_fit() const;
};

/// One call. What oneDNN lacks goes to the `cpu` backend.
void direct_forward(const kernels::ConvolutionArguments& arguments, StreamRef stream);
void direct_backward_data(const kernels::ConvolutionDataGradientArguments& arguments,
                          StreamRef stream);
void direct_backward_weight(const kernels::ConvolutionWeightGradientArguments& arguments,
                            StreamRef stream);

}  // namespace lockstep::backend
