#include "cuda/vector.hpp"

// What a GPU makes of a conversion is seen in its instructions alone: the simulated one has the
// CPU's.

using lockstep::cuda_kernels::convert;

__global__ void floats_to_bytes(const float* x, std::uint8_t* to) {
  to[threadIdx.x] = convert<std::uint8_t>(x[threadIdx.x]);
}
