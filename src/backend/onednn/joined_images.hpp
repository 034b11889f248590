#pragma once

#include <cstdint>

#include "arguments/convolution.hpp"

/// @file
/// Convolutions of narrow bf16 images, several side by side in one.
///
/// oneDNN's AMX code works on rows of an image, and fills the rest of its tiles with zeros: weight
/// gradients over 4 x 4 images take up to ten times as long as over the same number of positions in
/// wide ones. Here images stand beside each other, far enough apart that no window sees two of
/// them; the results between them are zero (dy) or dropped (y, dx). Code without AMX gains nothing
/// from it, and loses what the columns in between cost.

namespace lockstep::backend {

/// How images of one convolution are joined.
class JoinedImages {
 public:
  /// Results at least so wide fill tiles.
  static constexpr std::int64_t wide = 16;

  /// Not joined.
  JoinedImages() = default;
  /// @param x, weight, y bf16 images of a call, channels-last, and its weight.
  JoinedImages(const ArrayView& x, const ArrayView& weight, const ArrayView& y,
               const kernels::ConvGeometry& geometry);
  /// False where the images are wide enough, or cannot be joined.
  explicit operator bool() const { return count_ > 1; }

  /// The call for which it was made, or one of its gradients, by `direct_...` over joined images.
  void forward(const kernels::ConvolutionArguments& arguments, StreamRef stream) const;
  void backward_data(const kernels::ConvolutionDataGradientArguments& arguments,
                     StreamRef stream) const;
  void backward_weight(const kernels::ConvolutionWeightGradientArguments& arguments,
                       StreamRef stream) const;

 private:
  // Joined arrays in the calling thread's working memory, valid until its next joined call. `load`
  // copies the images there, with zeros between them.
  ArrayView x(const ArrayView& images, bool load) const;
  ArrayView y(const ArrayView& images, bool load) const;
  // Copies the images out of a joined array.
  void split(const ArrayView& images, const ArrayView& joined) const;

  std::int64_t count_ = 1;                // images side by side
  std::int64_t x_step_ = 0, y_step_ = 0;  // columns from one to the next
};

}  // namespace lockstep::backend
