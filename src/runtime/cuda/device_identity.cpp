#include "runtime/device_identity.hpp"

#include "runtime/cuda/check.hpp"

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

}  // namespace lockstep
