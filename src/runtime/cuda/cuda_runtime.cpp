#include <array>
#include <atomic>
#include <mutex>
#include <string>

#include "lockstep/observe/log.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/device_guard.hpp"
#include "runtime/cuda/event_reserve.hpp"
#include "runtime/cuda/stream_reserve.hpp"
#include "runtime/cuda/version_text.hpp"
#include "runtime/runtimes.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep {
namespace {

cudaStream_t native(StreamRef stream) { return static_cast<cudaStream_t>(stream.handle); }
cudaEvent_t native(void* event) { return static_cast<ReservedEvent*>(event)->event; }
int device_of(void* event) { return static_cast<ReservedEvent*>(event)->device; }

/// What CUDA says where there is no driver at all, and where it is older than the runtime.
std::string driver_problem() {
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return {};
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) return {};
  return "the driver is for CUDA " + version_text(driver) + ", this program's runtime is of " +
         version_text(runtime) + ": update the driver, or build with an older toolkit";
}

/// Devices the driver offers. No driver, or none visible: no GPU here. Anything else is a GPU that
/// cannot be used, which must not pass in silence.
int count_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess) {
    int driver = 0;
    if (count == 0 || cudaDriverGetVersion(&driver) != cudaSuccess) return count;
    const std::string problem = shortcoming_of_driver(driver);
    if (problem.empty()) return count;
    LOCKSTEP_LOG(warning, "no GPU is used: ", problem);
    return 0;
  }
  static_cast<void>(cudaGetLastError());
  if (status == cudaErrorInsufficientDriver) {
    if (const std::string problem = driver_problem(); !problem.empty())
      LOCKSTEP_LOG(warning, "no GPU is used: ", problem);
  } else if (status != cudaErrorNoDevice) {
    LOCKSTEP_LOG(warning, "no GPU is used: cudaGetDeviceCount failed with status ",
                 static_cast<int>(status), " (", cudaGetErrorString(status), ")");
  }
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

  StreamRef default_stream(Device device) override {
    std::atomic<void*>& stream = default_streams_.at(static_cast<std::size_t>(device.index));
    if (void* const made = stream.load(std::memory_order_acquire)) [[likely]]
      return {device, made};
    const std::lock_guard lock(making_default_);
    if (!stream.load(std::memory_order_relaxed))
      stream.store(streams_.acquire(device, StreamPriority::normal).handle,
                   std::memory_order_release);
    return {device, stream.load(std::memory_order_relaxed)};
  }

  StreamRef create_stream(Device device, StreamPriority priority) override {
    return streams_.acquire(device, priority);
  }

  void destroy_stream(StreamRef stream) noexcept override { streams_.release(stream); }

  std::uint32_t* counters(StreamRef stream) override {
    std::uint32_t* const counters = streams_.counters(stream);
    // Launches of a graph are in no order with the work of streams that had a part in it. That of a
    // step is never launched beside its own stream's.
    const StepRecording* const step = StepRecording::current();
    if (!counters || (step && step->stream() == stream)) return counters;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    LOCKSTEP_CUDA_CALL(cudaStreamIsCapturing, native(stream), &status);
    return status == cudaStreamCaptureStatusNone ? counters : nullptr;
  }

  void synchronize(StreamRef stream) override {
    const CudaDeviceGuard guard(stream.device.index);
    LOCKSTEP_CUDA_CALL(cudaStreamSynchronize, native(stream));
  }

  void* create_event(Device device, bool timing) override {
    return events_.acquire(device.index, timing);
  }

  void destroy_event(Device, void* event) noexcept override {
    events_.release(static_cast<ReservedEvent*>(event));
  }

  void release_cached() override { events_.clear(); }

  void record_event(void* event, StreamRef stream) override {
    const CudaDeviceGuard guard(stream.device.index);
    LOCKSTEP_CUDA_CALL(cudaEventRecord, native(event), native(stream));
  }

  void wait_event(void* event, StreamRef stream) override {
    const CudaDeviceGuard guard(stream.device.index);
    LOCKSTEP_CUDA_CALL(cudaStreamWaitEvent, native(stream), native(event), 0);
  }

  bool query_event(void* event) override {
    const CudaDeviceGuard guard(device_of(event));
    const cudaError_t status = cudaEventQuery(native(event));
    if (status == cudaSuccess) return true;
    if (status != cudaErrorNotReady) detail::throw_cuda_error("cudaEventQuery", status);
    static_cast<void>(cudaGetLastError());
    return false;
  }

  void synchronize_event(void* event) override {
    const CudaDeviceGuard guard(device_of(event));
    LOCKSTEP_CUDA_CALL(cudaEventSynchronize, native(event));
  }

  float elapsed_ms(void* from, void* to) override {
    const CudaDeviceGuard guard(device_of(from));
    float milliseconds = 0.0F;
    LOCKSTEP_CUDA_CALL(cudaEventElapsedTime, &milliseconds, native(from), native(to));
    return milliseconds;
  }

  // Of this thread alone: others may allocate, and ask events, meanwhile.
  void begin_capture(StreamRef stream) override {
    const CudaDeviceGuard guard(stream.device.index);
    LOCKSTEP_CUDA_CALL(cudaStreamBeginCapture, native(stream), cudaStreamCaptureModeThreadLocal);
  }

  void* end_capture(StreamRef stream) override {
    const CudaDeviceGuard guard(stream.device.index);
    cudaGraph_t graph = nullptr;
    LOCKSTEP_CUDA_CALL(cudaStreamEndCapture, native(stream), &graph);
    cudaGraphExec_t executable = nullptr;
    const cudaError_t status =
        cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagUseNodePriority);
    static_cast<void>(cudaGraphDestroy(graph));
    if (status != cudaSuccess) detail::throw_cuda_error("cudaGraphInstantiate", status);
    return executable;
  }

  void launch_graph(void* graph, StreamRef stream) override {
    const CudaDeviceGuard guard(stream.device.index);
    LOCKSTEP_CUDA_CALL(cudaGraphLaunch, static_cast<cudaGraphExec_t>(graph), native(stream));
  }

  void destroy_graph(Device device, void* graph) noexcept override {
    try {
      const CudaDeviceGuard guard(device.index);
      static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)));
    } catch (const CudaError&) {
      // The device has failed, and the graph went with it.
    }
  }

  void copy(void* to, const void* from, std::size_t bytes, StreamRef stream) override {
    if (bytes == 0) return;
    const CudaDeviceGuard guard(stream.device.index);
    LOCKSTEP_CUDA_CALL(cudaMemcpyAsync, to, from, bytes, cudaMemcpyDefault, native(stream));
  }

  bool pin(Device device, void* memory, std::size_t bytes) override {
    const CudaDeviceGuard guard(device.index);
    if (cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess) return true;
    static_cast<void>(cudaGetLastError());  // refused: too much of it, or no such memory
    return false;
  }

  bool unpin(Device device, void* memory) noexcept override {
    try {
      const CudaDeviceGuard guard(device.index);
      LOCKSTEP_CUDA_CALL(cudaHostUnregister, memory);
      return true;
    } catch (const CudaError&) {
      return false;
    }
  }

  void fill_bytes(void* to, int value, std::size_t bytes, StreamRef stream) override {
    if (bytes == 0) return;
    const CudaDeviceGuard guard(stream.device.index);
    LOCKSTEP_CUDA_CALL(cudaMemsetAsync, to, value, bytes, native(stream));
  }

 private:
  StreamReserve streams_;
  EventReserve events_;
  std::mutex making_default_;
  std::array<std::atomic<void*>, 64> default_streams_{};
};

}  // namespace

void copy_between_gpus(void* to, const void* from, Device from_device, std::size_t bytes,
                       StreamRef stream) {
  if (bytes == 0) return;
  const CudaDeviceGuard guard(stream.device.index);
  LOCKSTEP_CUDA_CALL(cudaMemcpyPeerAsync, to, stream.device.index, from, from_device.index, bytes,
                     native(stream));
}

DeviceRuntime* cuda_runtime() {
  static auto* const runtime = new CudaRuntime;  // outlives the streams of static objects
  return runtime;
}

}  // namespace lockstep
