#include "engine/graph.hpp"

#include <algorithm>
#include <unordered_map>

#include "engine/capture.hpp"
#include "engine/event_points.hpp"

CUgraphNode_st* CUgraph_st::add(simgpu::Operation operation, std::vector<CUgraphNode_st*> after) {
  nodes.push_back(std::make_unique<CUgraphNode_st>(
      CUgraphNode_st{.operation = std::move(operation), .after = std::move(after)}));
  return nodes.back().get();
}

namespace simgpu {

std::vector<GraphStep> plan(const CUgraph_st& graph) {
  std::vector<GraphStep> steps;
  std::unordered_map<const CUgraphNode_st*, std::size_t> position;
  std::vector<std::size_t> ends;  // the youngest step of each lane
  for (const auto& node : graph.nodes) {
    GraphStep step{node->operation, {}, ends.size(), node->events};
    for (const CUgraphNode_st* before : node->after) step.after.push_back(position.at(before));
    for (const std::size_t before : step.after)
      if (ends[steps[before].lane] == before) step.lane = std::min(step.lane, steps[before].lane);
    if (step.lane == ends.size()) ends.push_back(0);
    ends[step.lane] = steps.size();
    position.emplace(node.get(), steps.size());
    steps.push_back(std::move(step));
  }
  return steps;
}

namespace {

void make_lanes(Machine& machine, CUgraphExec_st& executable, const CUstream_st& stream) {
  std::size_t lanes = 0;
  for (const GraphStep& step : executable.steps) lanes = std::max(lanes, step.lane);
  while (executable.lanes.size() < lanes)
    executable.lanes.push_back(&machine.create_queue(
        stream.device, "branch " + std::to_string(executable.lanes.size() + 2) +
                           " of the graph launched on " + stream.queue->name));
}

// Lets a queue's next task follow another one.
void follow(Queue& queue, const TaskPtr& before, std::vector<TaskPtr>& after) {
  queue.clock.join(before->actor->before);
  after.push_back(before);
}

}  // namespace

std::vector<TaskPtr> queue_graph(Machine& machine, CUgraphExec_st& executable, CUstream_st& stream,
                                 Machine::Lock& lock) {
  make_lanes(machine, executable, stream);
  std::vector<TaskPtr> earlier = machine.legacy_order(stream);
  if (executable.last_end) follow(*stream.queue, executable.last_end, earlier);
  const TaskPtr begin =
      machine.put(*stream.queue, {.name = "begin of a graph"}, std::move(earlier), lock);
  std::vector<TaskPtr> tasks;
  std::vector<bool> is_end(executable.steps.size(), true);
  for (const GraphStep& step : executable.steps) {
    Queue& queue = step.lane == 0 ? *stream.queue : *executable.lanes[step.lane - 1];
    std::vector<TaskPtr> after;
    follow(queue, begin, after);
    for (const std::size_t before : step.after) {
      follow(queue, tasks[before], after);
      is_end[before] = false;
    }
    if (const CUevent_st* event = machine.find(step.events.waits_for))
      follow_point(*event, queue, after);
    tasks.push_back(machine.put(queue, step.operation, std::move(after), lock));
    if (CUevent_st* event = machine.find(step.events.records))
      record_point(*event, queue, machine.scheduler().now());
  }
  std::vector<TaskPtr> ends;
  for (std::size_t i = 0; i < tasks.size(); ++i)
    if (is_end[i]) follow(*stream.queue, tasks[i], ends);
  executable.last_end =
      machine.put(*stream.queue, {.name = "end of a graph"}, std::move(ends), lock);
  return tasks;
}

void capture_graph(const CUgraphExec_st& executable, CUstream_st& stream) {
  CUgraph_st& graph = *stream.capture->graph;
  std::vector<CUgraphNode_st*> nodes;
  std::vector<bool> is_end(executable.steps.size(), true);
  for (const GraphStep& step : executable.steps) {
    std::vector<CUgraphNode_st*> after = stream.frontier;
    for (const std::size_t before : step.after) {
      after.push_back(nodes[before]);
      is_end[before] = false;
    }
    nodes.push_back(graph.add(step.operation, std::move(after)));
    nodes.back()->events = step.events;
  }
  if (nodes.empty()) return;
  stream.frontier.clear();
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (is_end[i]) stream.frontier.push_back(nodes[i]);
}

}  // namespace simgpu
