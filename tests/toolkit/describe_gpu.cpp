// Writes cuDNN's description of this machine's first GPU, as tests/data/gpus keeps them, to
// standard output.

#include <iostream>

#include "backend/cuda/cudnn_ops.hpp"
#include "lockstep/core/error.hpp"

int main() try {
  const auto gpu = lockstep::backend::cudnn::describe_gpu(0);
  std::cout << gpu.name << '\n' << gpu.sm_version << '\n' << gpu.properties;
  return 0;
} catch (const lockstep::Error& error) {
  std::cerr << "describe_gpu: " << error.what() << '\n';
  return 1;
}
