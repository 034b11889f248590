#pragma once

/// @file
/// The kernel families of the reference backend, one per interface. Other CPU backends take from
/// here what they do not have themselves.

namespace lockstep::backend {

class Attention;
class BatchNorm;
class Convolution;
class Elementwise;
class Gemm;
class MultiTensor;
class Pooling;
class Reduce;
class Rows;

Elementwise& reference_elementwise();
Reduce& reference_reduce();
MultiTensor& reference_multi_tensor();
Rows& reference_rows();
Gemm& reference_gemm();
Convolution& reference_convolution();
Pooling& reference_pooling();
BatchNorm& reference_batch_norm();
Attention& reference_attention();

}  // namespace lockstep::backend
