#pragma once

#include <string_view>

#include "backend/attention.hpp"
#include "backend/spatial.hpp"

/// @file
/// What lockstep takes from cuDNN. Every function returns false where cuDNN has no plan for the
/// problem, or where the build has no cuDNN (`no_cudnn.cpp`); nothing is queued then.

namespace lockstep::backend::cudnn {

/// Why nothing here works in this build; empty where it does.
std::string_view missing();

/// One of the three products of a convolution: the first array is written.
enum class ConvDirection : unsigned char { forward, backward_data, backward_weight };
struct ConvArrays {
  ArrayView image, weight, result;  ///< x or dx, w or dw, y or dy
};
bool convolution(ConvDirection direction, const ConvArrays& arrays, const ConvGeometry& geometry,
                 StreamRef stream);

struct AttentionArrays {
  ArrayView q{}, k{}, v{}, out{}, lse{}, mask{};
  ArrayView dout{}, dq{}, dk{}, dv{};  ///< absent in forward
};
bool attention_forward(const AttentionArrays& arrays, AttentionOptions options, StreamRef stream);
bool attention_backward(const AttentionArrays& arrays, AttentionOptions options, StreamRef stream);

}  // namespace lockstep::backend::cudnn
