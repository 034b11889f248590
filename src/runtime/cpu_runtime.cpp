#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include <unistd.h>

#include "lockstep/core/error.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/runtime/info.hpp"
#include "runtime/host_graph.hpp"
#include "runtime/runtimes.hpp"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

/// The host as a device: one stream, on which everything is done by the time the call returns.
class CpuRuntime final : public DeviceRuntime {
 public:
  int device_count() override { return 1; }
  std::string device_name(int) override {
    return std::to_string(std::thread::hardware_concurrency()) + " hardware threads";
  }
  std::pair<std::size_t, std::size_t> memory_info(int) override {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return {static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) * page,
            static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * page};
  }

  StreamRef default_stream(Device) override { return {}; }
  StreamRef create_stream(Device device, StreamPriority) override { return {device, nullptr}; }
  void destroy_stream(StreamRef) noexcept override {}
  void synchronize(StreamRef) override {}

  void* create_event(Device, bool) override { return new Clock::time_point(); }
  void destroy_event(Device, void* event) noexcept override { delete time_of(event); }
  void record_event(void* event, StreamRef) override { *time_of(event) = Clock::now(); }
  void wait_event(void*, StreamRef) override {}
  bool query_event(void*) override { return true; }
  void synchronize_event(void*) override {}
  float elapsed_ms(void* from, void* to) override {
    return std::chrono::duration<float, std::milli>(*time_of(to) - *time_of(from)).count();
  }

  void begin_capture(StreamRef) override { HostGraph::record(new HostGraph()); }
  void* end_capture(StreamRef) override {
    HostGraph* const graph = HostGraph::recording();
    HostGraph::record(nullptr);
    return graph;
  }
  void launch_graph(void* graph, StreamRef) override { static_cast<HostGraph*>(graph)->run(); }
  void destroy_graph(Device, void* graph) noexcept override {
    delete static_cast<HostGraph*>(graph);
  }

  void copy(void* to, const void* from, std::size_t bytes, StreamRef stream) override {
    if (bytes == 0) return;
    if (HostGraph* const graph = HostGraph::recording()) [[unlikely]]
      return graph->add([=, this] { copy(to, from, bytes, stream); });
    std::memcpy(to, from, bytes);
  }
  void fill_bytes(void* to, int value, std::size_t bytes, StreamRef stream) override {
    if (bytes == 0) return;
    if (HostGraph* const graph = HostGraph::recording()) [[unlikely]]
      return graph->add([=, this] { fill_bytes(to, value, bytes, stream); });
    std::memset(to, value, bytes);
  }

 private:
  static Clock::time_point* time_of(void* event) { return static_cast<Clock::time_point*>(event); }
};

std::atomic<DeviceRuntime*>& replacement(DeviceType type) {
  static std::atomic<DeviceRuntime*> for_cpu{nullptr}, for_cuda{nullptr};
  return type == DeviceType::cpu ? for_cpu : for_cuda;
}

[[noreturn]] void refuse_graphs(StreamRef stream) {
  LOCKSTEP_THROW(Unsupported, "this runtime captures no work on ", stream.device);
}

}  // namespace

void DeviceRuntime::begin_capture(StreamRef stream) { refuse_graphs(stream); }
void* DeviceRuntime::end_capture(StreamRef stream) { refuse_graphs(stream); }
void DeviceRuntime::launch_graph(void*, StreamRef stream) { refuse_graphs(stream); }

DeviceRuntime* replace_device_runtime(DeviceType type, DeviceRuntime* runtime) {
  return replacement(type).exchange(runtime);
}

DeviceRuntime& device_runtime(DeviceType type) {
  if (DeviceRuntime* other = replacement(type).load(std::memory_order_acquire)) return *other;
  static CpuRuntime cpu_runtime;
  if (type == DeviceType::cpu) return cpu_runtime;
  DeviceRuntime* cuda = cuda_runtime();
  LOCKSTEP_CHECK(cuda, Unsupported, "this lockstep was built without CUDA");
  return *cuda;
}

int cuda_device_count() {
  DeviceRuntime* cuda = cuda_runtime();
  return cuda ? cuda->device_count() : 0;
}

}  // namespace lockstep
