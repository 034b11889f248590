#pragma once

#include "lockstep/autograd/ops.hpp"

/// @file
/// The ops under the name that PyTorch's users look for them: nn::functional::relu.

namespace lockstep::nn::functional {

using lockstep::adaptive_avg_pool1d;
using lockstep::adaptive_avg_pool2d;
using lockstep::avg_pool1d;
using lockstep::avg_pool2d;
using lockstep::batch_norm;
using lockstep::binary_cross_entropy;
using lockstep::binary_cross_entropy_with_logits;
using lockstep::conv1d;
using lockstep::conv2d;
using lockstep::conv_transpose1d;
using lockstep::conv_transpose2d;
using lockstep::cosine_similarity;
using lockstep::cross_entropy;
using lockstep::dropout;
using lockstep::dropout2d;
using lockstep::elu;
using lockstep::embedding;
using lockstep::gelu;
using lockstep::group_norm;
using lockstep::hardswish;
using lockstep::huber_loss;
using lockstep::interpolate;
using lockstep::kl_div;
using lockstep::l1_loss;
using lockstep::layer_norm;
using lockstep::leaky_relu;
using lockstep::linear;
using lockstep::linear_cross_entropy;
using lockstep::log_softmax;
using lockstep::max_pool1d;
using lockstep::max_pool2d;
using lockstep::mish;
using lockstep::mse_loss;
using lockstep::nll_loss;
using lockstep::normalize;
using lockstep::pad;
using lockstep::prelu;
using lockstep::relu;
using lockstep::rms_norm;
using lockstep::scaled_dot_product_attention;
using lockstep::self_attention;
using lockstep::sigmoid;
using lockstep::silu;
using lockstep::smooth_l1_loss;
using lockstep::softmax;
using lockstep::softplus;
using lockstep::tanh;

}  // namespace lockstep::nn::functional
