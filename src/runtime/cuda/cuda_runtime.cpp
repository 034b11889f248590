#include "runtime/cuda/check.hpp"
#include "runtime/cuda/device_guard.hpp"
#include "runtime/cuda/stream_reserve.hpp"
#include "runtime/runtimes.hpp"

namespace lockstep {
namespace {

cudaStream_t native(StreamRef stream) { return static_cast<cudaStream_t>(stream.handle); }
cudaEvent_t native(void* event) { return static_cast<cudaEvent_t>(event); }

/// Devices the driver offers. No driver, none visible, or one too old all mean: no GPU here.
int count_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  return 0;
}

/// The CUDA runtime behind the seam. Touches the driver on first use only.
class CudaRuntime final : public DeviceRuntime {
 public:
  int device_count() override {
    static const int count = count_devices();
    return count;
  }

  std::string device_name(int index) override {
    cudaDeviceProp properties{};
    LOCKSTEP_CUDA_CALL(cudaGetDeviceProperties, &properties, index);
    return properties.name;
  }

  std::pair<std::size_t, std::size_t> memory_info(int index) override {
    const CudaDeviceGuard guard(index);
    std::size_t free = 0;
    std::size_t total = 0;
    LOCKSTEP_CUDA_CALL(cudaMemGetInfo, &free, &total);
    return {free, total};
  }

  StreamRef create_stream(Device device, StreamPriority priority) override {
    return streams_.lend(device, priority);
  }

  void destroy_stream(StreamRef stream) noexcept override { streams_.take_back(stream); }

  void synchronize(StreamRef stream) override {
    const CudaDeviceGuard guard(stream.device.index);
    LOCKSTEP_CUDA_CALL(cudaStreamSynchronize, native(stream));
  }

  void* create_event(Device device, bool timing) override {
    const CudaDeviceGuard guard(device.index);
    cudaEvent_t event = nullptr;
    LOCKSTEP_CUDA_CALL(cudaEventCreateWithFlags, &event,
                       timing ? cudaEventDefault : cudaEventDisableTiming);
    return event;
  }

  void destroy_event(Device, void* event) noexcept override {
    static_cast<void>(cudaEventDestroy(native(event)));
  }

  void record_event(void* event, StreamRef stream) override {
    const CudaDeviceGuard guard(stream.device.index);
    LOCKSTEP_CUDA_CALL(cudaEventRecord, native(event), native(stream));
  }

  void wait_event(void* event, StreamRef stream) override {
    const CudaDeviceGuard guard(stream.device.index);
    LOCKSTEP_CUDA_CALL(cudaStreamWaitEvent, native(stream), native(event), 0);
  }

  bool query_event(void* event) override {
    const cudaError_t status = cudaEventQuery(native(event));
    if (status == cudaSuccess) return true;
    if (status != cudaErrorNotReady) detail::throw_cuda_error("cudaEventQuery", status);
    static_cast<void>(cudaGetLastError());
    return false;
  }

  void synchronize_event(void* event) override {
    LOCKSTEP_CUDA_CALL(cudaEventSynchronize, native(event));
  }

  float elapsed_ms(void* from, void* to) override {
    float milliseconds = 0.0F;
    LOCKSTEP_CUDA_CALL(cudaEventElapsedTime, &milliseconds, native(from), native(to));
    return milliseconds;
  }

  void copy(void* to, const void* from, std::size_t bytes, StreamRef stream) override {
    if (bytes == 0) return;
    const CudaDeviceGuard guard(stream.device.index);
    LOCKSTEP_CUDA_CALL(cudaMemcpyAsync, to, from, bytes, cudaMemcpyDefault, native(stream));
  }

  void fill_bytes(void* to, int value, std::size_t bytes, StreamRef stream) override {
    if (bytes == 0) return;
    const CudaDeviceGuard guard(stream.device.index);
    LOCKSTEP_CUDA_CALL(cudaMemsetAsync, to, value, bytes, native(stream));
  }

 private:
  StreamReserve streams_;
};

}  // namespace

DeviceRuntime* cuda_runtime() {
  static auto* const runtime = new CudaRuntime;  // outlives the streams of static objects
  return runtime;
}

}  // namespace lockstep
