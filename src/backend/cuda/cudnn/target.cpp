#include "backend/cuda/cudnn/target.hpp"

#include "runtime/cuda/check.hpp"

namespace lockstep::backend::cudnn {
namespace {

void check(frontend::error_t status, const char* call) {
  if (status.is_bad())
    throw CudnnError(call, static_cast<int>(status.get_code()), status.get_message());
}

}  // namespace

PlanTarget::PlanTarget(const GpuDescription& gpu) : sm_version_(gpu.sm_version) {
  const auto properties = std::make_shared<frontend::DeviceProperties>();
  check(properties->deserialize({gpu.properties.begin(), gpu.properties.end()}),
        "DeviceProperties::deserialize");
  properties_ = properties;
}

void PlanTarget::prepare(Graph& graph) const {
  if (!properties_) return;
  graph.set_device_properties(properties_);
  graph.set_sm_version(sm_version_);
}

GpuDescription describe_gpu(int device) {
  cudaDeviceProp gpu{};
  LOCKSTEP_CUDA_CALL(cudaGetDeviceProperties, &gpu, device);
  frontend::DeviceProperties properties;
  check(properties.set_device_id(device).build(), "DeviceProperties::build");
  std::vector<std::uint8_t> text;
  check(properties.serialize(text), "DeviceProperties::serialize");
  return {.name = gpu.name,
          .sm_version = gpu.major * 10 + gpu.minor,
          .properties = {text.begin(), text.end()}};
}

}  // namespace lockstep::backend::cudnn
