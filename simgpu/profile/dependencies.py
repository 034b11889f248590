"""What must end before what begins: the calls of each host thread, the work on streams, events, graphs, ranks.

`build` makes the graph of one or several ranks' records. Nodes are of the host (a call) or of the device (work);
an edge says by name which gap lies between an end and a beginning (devices/host.json), or how many microseconds.
"""

import model as models
from host_clock import gaps, launching
from records import DEVICE_KINDS

ISSUE, PREDECESSOR, GRAPH_NODE = "issue_to_start", "after_predecessor", "after_graph_node"
EVENT, WAKES, NOTHING = "after_event", "host_wakes", "none"


class Node:
    """A call or a piece of work. `waits_for` are edges that hold its end, not its beginning."""
    __slots__ = ("rank", "record", "on_device", "prediction", "cost", "after", "waits_for", "arrivals", "index")

    def __init__(self, rank, record, on_device, prediction=None, cost=None):
        self.rank, self.record, self.on_device = rank, record, on_device
        self.prediction, self.cost = prediction, cost
        self.after, self.waits_for, self.arrivals, self.index = [], [], None, -1


class RankBuilder:
    """Adds the nodes of one rank, in the order of its records."""

    def __init__(self, graph, rank, profile, model, options):
        self.graph, self.rank, self.model, self.options = graph, rank, model, options
        self.gaps = gaps(profile.records, options.host_scale, options.host_gap)
        self.launching, self.last_launching = launching(profile.records), None
        self.last_call, self.tails, self.events, self.recorded_by = {}, {}, {}, {}
        self.met = {}
        self.made = {}
        self.nodes_of = {}
        for record in profile.records:
            if "graph_launch" in record:
                self.nodes_of.setdefault(record["graph_launch"], []).append(record)
        for record in profile.records:
            if "graph_launch" not in record:
                self.add(record)

    def node(self, record, on_device, **fields):
        node = Node(self.rank, record, on_device, **fields)
        node.index = len(self.graph.nodes)
        self.graph.nodes.append(node)
        return node

    def call(self, record, cost_of):
        """The host's part of a record."""
        node = self.node(record, False, cost=cost_of)
        before = self.last_call.get(record["thread"])
        if before is not None:
            node.after.append((before, self.gaps[record["id"]]))
        self.last_call[record["thread"]] = node
        if record["thread"] in self.launching:
            self.last_launching = node
        elif self.last_launching is not None:
            node.after.append((self.last_launching, NOTHING))
        return node

    def add(self, record):
        kind = record["kind"]
        call = self.call(record, kind)
        if kind in DEVICE_KINDS:
            self.tails[record["stream"]] = [(self.work(record, call), PREDECESSOR)]
            self.blocking_copy(record)
        elif kind == "event_record":
            event = (record["event"], record["version"])
            self.events[event] = [(call, NOTHING)] + [(node, NOTHING) for node, _ in self.tail(record["stream"])]
            self.recorded_by[event] = call
        elif kind == "stream_wait":
            self.wait_on_stream(record, call)
        elif kind == "host_wait":
            call.waits_for = [(node, WAKES) for node, _ in self.awaited(record)]
        elif kind == "graph_launch":
            self.launch_graph(record, call)

    def tail(self, stream):
        return self.tails.get(stream, [])

    def work(self, record, call):
        """Work on a stream: after the call, and what was there before."""
        node = self.on_device(record)
        node.after += [(call, ISSUE)] + self.tail(record["stream"])
        node.after += [(self.made[other], PREDECESSOR) for other in record.get("follows", []) if other in self.made]
        self.made[record["id"]] = self.meeting(node)
        return self.made[record["id"]]

    def on_device(self, record):
        known = record["kind"] in DEVICE_KINDS
        return self.node(record, True, prediction=self.model.predict(record) if known else models.nothing())

    def meeting(self, node):
        """The node whose end is that of `node`: for a collective the one in which the ranks meet."""
        if not meets(node.record):
            return node
        communicator, ranks = node.record["communicator"], node.record["ranks"]
        number = self.met[communicator] = self.met.get(communicator, -1) + 1
        # Ranks of a smaller communicator are taken to be neighbours.
        key = (communicator, self.rank // ranks if ranks < self.graph.ranks else 0, number)
        join = self.graph.meetings.get(key)
        if join is None:
            join = self.node(node.record, True, prediction=node.prediction)
            join.arrivals = []
            self.graph.meetings[key] = join
        join.arrivals.append(node)
        join.after.append((node, NOTHING))
        node.prediction = models.nothing()
        return join

    def wait_on_stream(self, record, call):
        event = (record["event"], record["version"])
        if event in self.events:
            waits = [(node, EVENT) for node, _ in self.events[event]]
            self.tails[record["stream"]] = self.tail(record["stream"]) + waits
            call.after.append((self.recorded_by[event], NOTHING))

    def awaited(self, record):
        """What the host waits for."""
        if record["waits_for"] == "event":
            return self.events.get((record["event"], record["version"]), [])
        if record["waits_for"] == "stream":
            return self.tail(record["stream"])
        return [edge for tail in self.tails.values() for edge in tail]

    def blocking_copy(self, record):
        """A copy that returns when it is done: cudaMemcpy from or to the host, and one to pageable memory."""
        if record["kind"] != "copy" or record["direction"] in ("d2d", "p2p"):
            return
        to_pageable = record["direction"] == "d2h" and not record.get("pinned", True)
        if to_pageable or not record["name"].endswith("Async"):
            wait = self.call(dict(record, kind="host_wait", waits_for="stream"), "none")
            wait.after[0] = (wait.after[0][0], 0.0)
            wait.waits_for = [(node, WAKES) for node, _ in self.tail(record["stream"])]

    def launch_graph(self, record, call):
        """A graph's nodes, after one another as captured: those of one stream in order, and after what they name.
        The stream goes on after those that end it."""
        made, ended, last_of = {}, {}, {}
        for entry in self.nodes_of.get(record["id"], []):
            node = self.on_device(entry)
            names = set(entry.get("after", [])) | {last_of.get(entry["stream"])}
            before = [made[other] for other in names if other in made]
            node.after += [(other, GRAPH_NODE) for other in before]
            if not before:
                node.after += [(call, ISSUE)] + self.tail(record["stream"])
            made[entry["id"]] = ended[entry["id"]] = self.meeting(node)
            last_of[entry["stream"]] = entry["id"]
            for other in names:
                ended.pop(other, None)
        if ended:
            self.tails[record["stream"]] = [(node, PREDECESSOR) for node in ended.values()]


def meets(record):
    """True for collectives in which all ranks of a communicator take part, unlike sends and receives."""
    return (record["kind"] == "collective" and record["ranks"] > 1
            and any(call["op"] not in ("Send", "Recv") for call in record["calls"]))


class Graph:
    """All nodes, and the meetings of ranks in collectives."""

    def __init__(self, ranks):
        self.ranks, self.nodes, self.meetings = ranks, [], {}


def build(profiles, model, options):
    """The graph of all ranks."""
    graph = Graph(max(profile.ranks for profile in profiles))
    for profile in profiles:
        RankBuilder(graph, profile.rank, profile, model, options)
    return graph
