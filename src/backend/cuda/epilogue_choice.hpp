#pragma once

namespace lockstep::cuda_kernels {

/// Whether products of a device compute GELU and its gradient themselves, where cuBLASLt can: from
/// compute capability 9.0 on; before, llm.c found a pass of its own to take less time. The variable
/// LOCKSTEP_FUSED_GELU decides for all devices: 0 no, 1 yes. @throws InvalidArgument for another
/// value, CudaError.
bool fuses_gelu(int device);
/// The same of biases' gradients, which products of weights' gradients sum up; on A100s some such
/// products were reported to take longer (CUDALibrarySamples, issue 90). The variable is
/// LOCKSTEP_FUSED_BIAS_GRADIENT.
bool fuses_bias_gradient(int device);
/// Whether norms' gradients compute them where they can: unless that variable is 1, as an H100's
/// products do not sum them up but have another kernel read the gradient again.
bool norms_sum_biases(int device);

}  // namespace lockstep::cuda_kernels
