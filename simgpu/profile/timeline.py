"""Places the nodes of a dependency graph in time."""

import collections
import dataclasses
import typing

import contention
import dependencies
import device as devices

CASES = ("low", "expected", "high")


@dataclasses.dataclass(frozen=True)
class Options:
    """How the host is taken to be: `host_scale` times as slow as the one that ran the simulation, or with
    `host_gap` microseconds of its own work before each call."""
    host_scale: float = 1.0
    host_gap: typing.Optional[float] = None


@dataclasses.dataclass
class Placed:
    """A node with its times in microseconds. `bound_by` is the node for which its beginning waited."""
    node: dependencies.Node
    begin: float = 0.0
    end: float = 0.0
    bound_by: typing.Optional[dependencies.Node] = None
    waited: float = 0.0


class Timeline:
    """All nodes placed, in one of the three cases."""

    def __init__(self, graph, case="expected"):
        self.graph, self.case = graph, case
        at = CASES.index(case)
        calls, gaps = devices.host_costs()
        self.call_costs = {name: costs[at] for name, costs in calls.items()}
        self.call_costs.update(mark=0.0, none=0.0)
        self.gaps = {name: costs[at] for name, costs in gaps.items()}
        self.gaps[dependencies.NOTHING] = 0.0
        self.placed = []
        self.order = topological(graph.nodes)
        self.place({})
        slower = contention.extra_time(self.placed)
        if slower:
            self.place(slower)

    def duration(self, node, slower):
        if node.on_device:
            return node.prediction.at(self.case) + slower.get(node.index, 0.0)
        cost = self.call_costs[node.cost]
        if node.cost == "graph_launch":
            cost += node.record["nodes"] * self.call_costs["graph_launch_per_node"]
        return cost

    def gap(self, edge):
        return self.gaps[edge] if isinstance(edge, str) else edge

    def place(self, slower):
        self.placed = [Placed(node) for node in self.graph.nodes]
        for node in self.order:
            placed = self.placed[node.index]
            for before, edge in node.after:
                ready = self.placed[before.index].end + self.gap(edge)
                if ready > placed.begin:
                    placed.begin, placed.bound_by = ready, before
            placed.end = placed.begin + self.duration(node, slower)
            for before, edge in node.waits_for:
                ready = self.placed[before.index].end + self.gap(edge)
                if ready > placed.end and self.placed[before.index].end > placed.begin:
                    placed.waited, placed.end = ready - placed.begin, ready


def topological(nodes):
    """Nodes in an order in which each comes after those that it waits for."""
    followers, missing = collections.defaultdict(list), {}
    for node in nodes:
        edges = node.after + node.waits_for
        missing[node.index] = len(edges)
        for before, _ in edges:
            followers[before.index].append(node)
    ready = collections.deque(node for node in nodes if not missing[node.index])
    order = []
    while ready:
        node = ready.popleft()
        order.append(node)
        for follower in followers[node.index]:
            missing[follower.index] -= 1
            if not missing[follower.index]:
                ready.append(follower)
    if len(order) < len(nodes):
        stuck = next(node for node in nodes if missing[node.index])
        raise ValueError(f"record {stuck.record['id']} ({stuck.record['name']}) of rank {stuck.rank} waits for itself: "
                         "do the ranks' collectives come in one order, and are all files of one run?")
    return order


def of(profiles, model, options=Options(), case="expected"):
    """The timeline of one or several ranks' profiles."""
    return Timeline(dependencies.build(profiles, model, options), case)
