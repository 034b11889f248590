#pragma once

#include <memory>
#include <vector>

#include "engine/machine.hpp"
#include "engine/operation.hpp"

/// @file
/// Graphs of operations. Guarded by the machine's mutex.

namespace simgpu {

/// Events that launches of a graph record or wait for (cudaEventRecordExternal): those that live by
/// then.
struct EventsOfNode {
  cudaEvent_t records = nullptr;
  cudaEvent_t waits_for = nullptr;
};

}  // namespace simgpu

/// An operation of a graph.
struct CUgraphNode_st {
  simgpu::Operation operation;
  std::vector<CUgraphNode_st*> after;
  simgpu::EventsOfNode events = {};
  int priority = 0;  ///< of the stream that captured it
};

/// Operations in an order in which each follows those that it depends on.
struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;

  /// Adds a node after others of this graph.
  CUgraphNode_st* add(simgpu::Operation operation, std::vector<CUgraphNode_st*> after);
};

namespace simgpu {

/// A node ready to be queued: nodes of a lane run one after the other.
struct GraphStep {
  Operation operation;
  std::vector<std::size_t> after;  ///< positions of earlier steps
  std::size_t lane = 0;            ///< 0 is the stream that the graph is launched on
  EventsOfNode events = {};
};

/// The steps of a graph. A chain of nodes shares a lane; a fork opens new ones.
std::vector<GraphStep> plan(const CUgraph_st& graph);

}  // namespace simgpu

/// A graph that can be launched.
struct CUgraphExec_st {
  std::vector<simgpu::GraphStep> steps;
  int device = 0;
  std::vector<simgpu::Queue*> lanes;  ///< but for the first one; made by the first launch
  simgpu::TaskPtr last_end;           ///< of the last launch: the next one follows it
};

namespace simgpu {

/// Queues the steps of a graph behind what is in the stream. @return what has to be checked for
/// races once the mutex is free: the tasks, in the order of the steps.
std::vector<TaskPtr> queue_graph(Machine& machine, CUgraphExec_st& executable, CUstream_st& stream,
                                 Machine::Lock& lock);

/// Adds a graph's steps to the graph that a stream captures.
void capture_graph(const CUgraphExec_st& executable, CUstream_st& stream);

}  // namespace simgpu
