#pragma once

#include "backend/onednn/direct_convolution.hpp"

/// @file
/// 1 x 1 convolutions of images that lie plane by plane (NCHW) as products for each image, of the
/// weight and its planes as they are: oneDNN's convolutions bring such images into blocks of
/// channels and back, and fill up blocks that are not whole.

namespace lockstep::backend {

/// True for a normalised call of f32 whose planes are large enough for it.
bool is_plane_product(const ConvolutionCall& call);

/// The calls that are such.
void plane_forward(const kernels::ConvolutionArguments& arguments, StreamRef stream);
void plane_backward_data(const kernels::ConvolutionDataGradientArguments& arguments,
                         StreamRef stream);
void plane_backward_weight(const kernels::ConvolutionWeightGradientArguments& arguments,
                           StreamRef stream);

}  // namespace lockstep::backend
