#include <algorithm>
#include <atomic>

#include "base/leaks.hpp"
#include "base/report.hpp"
#include "engine/capture.hpp"
#include "engine/entry.hpp"
#include "engine/graph.hpp"
#include "engine/host.hpp"
#include "memory/stack_memory.hpp"
#include "simgpu/simgpu.hpp"

namespace simgpu {
namespace {

std::atomic<std::size_t> without_priorities{0};

// Without the flag all nodes have the priority of the stream on which the graph is launched.
bool loses_priorities(const CUgraph_st& graph, unsigned long long flags) {
  return (flags & cudaGraphInstantiateFlagUseNodePriority) == 0 &&
         std::ranges::any_of(graph.nodes, [](const auto& node) { return node->priority != 0; });
}

cudaError_t instantiate(cudaGraphExec_t* to, cudaGraph_t graph, unsigned long long flags) {
  constexpr unsigned long long known =
      cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUseNodePriority;
  if (to == nullptr || graph == nullptr || (flags & ~known) != 0) return cudaErrorInvalidValue;
  auto executable = std::make_unique<CUgraphExec_st>();
  {
    const auto lock = Machine::instance().lock();
    executable->steps = plan(*graph);
    if (loses_priorities(*graph, flags)) ++without_priorities;
  }
  executable->device = current_device();
  *to = executable.release();
  object_created("executable graph", *to);
  return cudaSuccess;
}

std::atomic<std::size_t> launched{0};

/// Nodes read and write the host's memory at each launch, which must be there still. Of that on the
/// stack it shows where the function has returned, whose caller's `frame` is given.
void check_stack(const CUgraphExec_st& executable, const void* frame) {
  for (const GraphStep& step : executable.steps) {
    if (step.operation.accesses_are_bounds) continue;
    for (const Access& access : step.operation.accesses)
      if (access.bytes > 0 && is_left_stack(access.data, frame))
        report(Finding::use_after_free,
               step.operation.name + " in a graph " + (access.writes ? "writes " : "reads ") +
                   std::to_string(access.bytes) +
                   " bytes of the host's stack, of a function that has returned: the host's memory "
                   "is used at each launch, and must be kept for as long\n  captured at " +
                   describe(step.operation.site) + "\n  launched at " + describe(CallSite::here()));
  }
}

cudaError_t launch(CUgraphExec_st& executable, cudaStream_t handle) {
  Machine& machine = Machine::instance();
  auto lock = machine.lock();
  CUstream_st* const stream = machine.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) {
    if (stream->capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
    capture_graph(executable, *stream);
    return cudaSuccess;
  }
  if (const cudaError_t refused = check_implicit_capture(*stream); refused != cudaSuccess)
    return refused;
  ++launched;
  const profile::Origin origin = profile::is_on() ? profile::ask() : profile::Origin{};
  machine.graph_launch = origin.id;
  const std::vector<TaskPtr> tasks = queue_graph(machine, executable, *stream, lock);
  machine.graph_launch = 0;
  const Queue& queue = *stream->queue;
  const profile::Fields launch_record = profile::Fields()
                                            .add("kind", "graph_launch")
                                            .add("name", "cudaGraphLaunch")
                                            .add("device", queue.device)
                                            .add("stream", queue.number)
                                            .add("nodes", tasks.size());
  lock.unlock();
  if (origin.id != 0) profile::write(origin, CallSite::here(), launch_record);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Operation& operation = executable.steps[i].operation;
    if (!operation.accesses_are_bounds) machine.check_accesses(tasks[i]->actor, operation.accesses);
    machine.note_pinned(tasks[i]->actor, operation.accesses);
  }
  return cudaSuccess;
}

// The same nodes with the same edges, with other arguments perhaps.
cudaGraphExecUpdateResult compare(const std::vector<GraphStep>& before,
                                  const std::vector<GraphStep>& after) {
  if (before.size() != after.size()) return cudaGraphExecUpdateErrorTopologyChanged;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i].after != after[i].after) return cudaGraphExecUpdateErrorTopologyChanged;
    if (before[i].operation.name != after[i].operation.name)
      return cudaGraphExecUpdateErrorFunctionChanged;
  }
  return cudaGraphExecUpdateSuccess;
}

cudaError_t update(CUgraphExec_st& executable, const CUgraph_st& graph,
                   cudaGraphExecUpdateResultInfo* info) {
  const auto lock = Machine::instance().lock();
  std::vector<GraphStep> steps = plan(graph);
  const cudaGraphExecUpdateResult result = compare(executable.steps, steps);
  if (info != nullptr) *info = {result, nullptr, nullptr};
  if (result != cudaGraphExecUpdateSuccess) return cudaErrorGraphExecUpdateFailure;
  executable.steps = std::move(steps);
  return cudaSuccess;
}

cudaError_t nodes_of(const CUgraph_st& graph, cudaGraphNode_t* nodes, std::size_t* count) {
  const auto lock = Machine::instance().lock();
  if (nodes != nullptr)
    for (std::size_t i = 0; i < *count; ++i)
      nodes[i] = i < graph.nodes.size() ? graph.nodes[i].get() : nullptr;
  if (nodes == nullptr || *count > graph.nodes.size()) *count = graph.nodes.size();
  return cudaSuccess;
}

}  // namespace

std::size_t graph_launches() { return launched; }
std::size_t graphs_without_priorities() { return without_priorities; }

}  // namespace simgpu

using simgpu::Allowed;
using simgpu::EntryPoint;

extern "C" {

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  static EntryPoint entry("cudaGraphCreate");
  return entry.call([&] {
    if (graph == nullptr || flags != 0) return cudaErrorInvalidValue;
    *graph = std::make_unique<CUgraph_st>().release();
    simgpu::object_created("graph", *graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  static EntryPoint entry("cudaGraphDestroy", Allowed::always);
  return entry.call([&] {
    if (graph == nullptr) return cudaErrorInvalidValue;
    simgpu::object_destroyed("graph", graph);
    const std::unique_ptr<CUgraph_st> owned(graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  static EntryPoint entry("cudaGraphGetNodes");
  return entry.call([&] {
    if (graph == nullptr || count == nullptr) return cudaErrorInvalidValue;
    return simgpu::nodes_of(*graph, nodes, count);
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags) {
  static EntryPoint entry("cudaGraphInstantiate");
  return entry.call([&] { return simgpu::instantiate(executable, graph, flags); });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  static EntryPoint entry("cudaGraphInstantiateWithFlags");
  return entry.call([&] { return simgpu::instantiate(executable, graph, flags); });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* result) {
  static EntryPoint entry("cudaGraphExecUpdate");
  return entry.call([&] {
    if (executable == nullptr || graph == nullptr) return cudaErrorInvalidValue;
    return simgpu::update(*executable, *graph, result);
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t) {
  static EntryPoint entry("cudaGraphUpload");
  return entry.call([&] { return executable == nullptr ? cudaErrorInvalidValue : cudaSuccess; });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  static EntryPoint entry("cudaGraphLaunch");
  const void* const callers_frame = __builtin_dwarf_cfa();
  return entry.call([&] {
    if (executable == nullptr) return cudaErrorInvalidValue;
    simgpu::check_stack(*executable, callers_frame);
    return simgpu::launch(*executable, stream);
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  static EntryPoint entry("cudaGraphExecDestroy", Allowed::always);
  return entry.call([&] {
    if (executable == nullptr) return cudaErrorInvalidValue;
    simgpu::object_destroyed("executable graph", executable);
    const std::unique_ptr<CUgraphExec_st> owned(executable);
    simgpu::Machine& machine = simgpu::Machine::instance();
    const auto lock = machine.lock();
    for (simgpu::Queue* lane : owned->lanes) machine.destroy_queue(*lane);
    return cudaSuccess;
  });
}

}  // extern "C"
