#include "runtime/device_identity.hpp"

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep {

std::string cuda_device_identity(int index) {
  cudaDeviceProp properties{};
  LOCKSTEP_CUDA_CALL(cudaGetDeviceProperties, &properties, index);
  std::string text;
  for (const char byte : properties.uuid.bytes) {
    constexpr const char* digits = "0123456789abcdef";
    text += digits[(static_cast<unsigned char>(byte) >> 4) & 0xF];
    text += digits[static_cast<unsigned char>(byte) & 0xF];
  }
  return text;
}

void set_home_cuda_device(int index) {
  LOCKSTEP_CUDA_CALL(cudaSetDevice, index);
  home_device = index;
}

}  // namespace lockstep
