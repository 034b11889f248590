"""What a step costs and why: its time, and how much of it is computation, exchange, waiting and launching."""

import collections
import dataclasses
import re

import spans
from contention import COMPUTES
from dependencies import meets
from host_clock import launching
from records import DEVICE_KINDS

# Beginnings that a call on the host held up are bound by the host where the device was idle for this long.
LEAST_IDLE_US = 0.5
# Of a name in tables.
MOST_LETTERS = 72


@dataclasses.dataclass
class Work:
    """A piece of work as one rank sees it. `begin` is when that rank has come, for a collective too."""
    record: dict
    begin: float
    end: float
    prediction: object
    held_by_host: bool
    waited: float = 0.0

    @property
    def duration(self):
        return self.end - self.begin


def work_of(timeline, rank):
    """All work of a rank, in order of ids."""
    found = []
    for entry in timeline.placed:
        node = entry.node
        if not node.on_device or node.record["kind"] not in DEVICE_KINDS:
            continue
        by_host = entry.bound_by is not None and not entry.bound_by.on_device
        if node.arrivals is not None:
            for arrival in node.arrivals:
                if arrival.rank == rank:
                    arrived = timeline.placed[arrival.index]
                    held = arrived.bound_by is not None and not arrived.bound_by.on_device
                    found.append(Work(arrival.record, arrived.begin, entry.end, node.prediction, held,
                                      entry.begin - arrived.begin))
        elif node.rank == rank and not meets(node.record):
            found.append(Work(node.record, entry.begin, entry.end, node.prediction, by_host))
    return sorted(found, key=lambda work: work.record["id"])


def calls_of(timeline, rank):
    """The placed calls of a rank's threads that launch work, in order of ids."""
    calls = [entry for entry in timeline.placed if entry.node.rank == rank and not entry.node.on_device]
    threads = launching([entry.node.record for entry in calls])
    return [entry for entry in calls if entry.node.record["thread"] in threads]


def done_by(timeline, work, rank, limit):
    """When all work and calls asked for before an id are done: 0 without a limit."""
    if limit is None:
        return 0.0
    ends = [piece.end for piece in work if piece.record["id"] < limit]
    ends += [entry.end for entry in calls_of(timeline, rank) if entry.node.record["id"] < limit]
    return max(ends, default=0.0)


@dataclasses.dataclass
class Step:
    """One rank's step. Times in microseconds."""
    rank: int
    begin: float
    end: float
    work: list
    calls: list
    compute: float = 0.0
    exchange: float = 0.0
    exposed: float = 0.0
    exposed_to_ranks: float = 0.0  # of what is exposed, waiting for ranks that come later
    idle: float = 0.0
    launch_bound: float = 0.0
    flops: float = 0.0
    flops_at: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # by what rate they have
    bytes: float = 0.0
    launches: int = 0
    in_calls: float = 0.0  # the host, without waiting
    own_work: float = 0.0  # of the host thread that makes most calls, between them
    waits: dict = dataclasses.field(default_factory=dict)

    @property
    def time(self):
        return self.end - self.begin

    @property
    def rate(self):
        """The kind of product that most FLOPs are of: "bf16", "tf32", "f32"."""
        return self.flops_at.most_common(1)[0][0] if self.flops_at else "bf16"

    def utilisation(self, peak):
        """FLOPs of all products over the peak of the time (MFU where nothing is computed twice)."""
        return self.flops / (peak * self.time * 1e-6) if self.time else 0.0


def step_of(timeline, rank, window):
    """The Step of a rank."""
    work = work_of(timeline, rank)
    begin = done_by(timeline, work, rank, window.begin)
    last = window.end if window.end is not None else float("inf")
    end = done_by(timeline, work, rank, last)
    inside = [piece for piece in work if window.holds(piece.record)]
    calls = [entry for entry in calls_of(timeline, rank) if window.holds(entry.node.record)]
    step = Step(rank, begin, end, inside, calls)
    computing = spans.union((piece.begin, piece.end) for piece in work if piece.record["kind"] in COMPUTES)
    exchanging = spans.union((piece.begin, piece.end) for piece in work if piece.record["kind"] == "collective")
    copying = spans.union((piece.begin, piece.end) for piece in work if piece.record["kind"] == "copy")
    here = [spans.clipped(part, begin, end) for part in (computing, exchanging, copying)]
    step.compute, step.exchange = spans.length(here[0]), spans.length(here[1])
    step.exposed = spans.length(spans.without(here[1], here[0]))
    waiting = spans.union((piece.begin, piece.begin + piece.waited) for piece in work)
    step.exposed_to_ranks = spans.length(spans.without(spans.clipped(waiting, begin, end), here[0]))
    idle = spans.without([(begin, end)], spans.union([span for part in here for span in part]))
    step.idle = spans.length(idle)
    step.launch_bound = launch_bound(idle, work)
    step.in_calls, step.own_work = host_time(step)
    count(step)
    return step


def launch_bound(idle, work):
    """Idle time that ends with work which the device had been waiting for the host to launch."""
    held = {round(piece.begin, 6) for piece in work if piece.held_by_host}
    return sum(end - begin for begin, end in idle if end - begin > LEAST_IDLE_US and round(end, 6) in held)


def host_time(step):
    """(microseconds in calls without waiting, own work between calls of the thread that makes most of them)."""
    threads = collections.defaultdict(list)
    for entry in step.calls:
        threads[entry.node.record["thread"]].append(entry)
    if not threads:
        return 0.0, 0.0
    busiest = max(threads.values(), key=len)
    between = busiest[-1].end - busiest[0].begin - sum(entry.end - entry.begin for entry in busiest)
    return sum(entry.end - entry.begin - entry.waited for entry in step.calls), max(0.0, between)


def longest_work(step):
    """[(microseconds, what is called after it)]: the host's own work between two calls, the longest first."""
    found = [(edge, label(entry.node.record)) for entry in step.calls for _, edge in entry.node.after
             if not isinstance(edge, str)]
    return sorted(found, key=lambda work: -work[0])


def rate_of(record):
    """By which peak rate a product, convolution or attention is held: f32 is TF32 but in products that ask for more."""
    dtype = record.get("a") or record.get("dtype", "bf16")
    return "tf32" if dtype == "f32" and record.get("compute", "tf32") == "tf32" else dtype


def count(step):
    """Launches, FLOPs, bytes and waits of the host."""
    waits = collections.defaultdict(lambda: [0, 0.0])
    for piece in step.work:
        step.flops += piece.prediction.flops
        if piece.prediction.flops:
            step.flops_at[rate_of(piece.record)] += piece.prediction.flops
        if piece.record["kind"] != "collective":
            step.bytes += piece.prediction.bytes
    for entry in step.calls:
        record = entry.node.record
        step.launches += record["kind"] in DEVICE_KINDS or record["kind"] == "graph_launch"
        if entry.node.waits_for or record["kind"] == "host_wait":
            place = waits[record.get("site") or record["name"]]
            place[0] += 1
            place[1] += entry.waited
    step.waits = {site: tuple(entry) for site, entry in waits.items()}


def costs(step):
    """What costs most: [(name, kind, bound, times, microseconds, bytes)], the largest first."""
    found = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for piece in step.work:
        record, prediction = piece.record, piece.prediction
        entry = found[label(record), record["kind"], prediction.bound]
        entry[0] += 1
        entry[1] += piece.duration - piece.waited
        entry[2] += prediction.bytes
    rows = [(*key, *entry) for key, entry in found.items()]
    return sorted(rows, key=lambda row: -row[4])


def label(record):
    """What people call a record: a product by its shape, a kernel by its name."""
    if record["kind"] == "product":
        batch = f"{record['batch']} x " if record.get("batch", 1) > 1 else ""
        return f"{batch}{record['m']} x {record['n']} x {record['k']} {record['a']}"
    if record["kind"] == "attention":
        way = "backward" if record["backward"] else "forward"
        return f"attention {way} {record['queries']} x {record['keys']} x {record['width']}"
    if record["kind"] == "convolution":
        return f"convolution {record['pass']}"
    if record["kind"] == "collective":
        return ", ".join(f"{call['op']} {call['count']} {call['dtype']}" for call in record["calls"][:2])
    return (f"{record['op']}: " if record.get("op") else "") + short_name(record["name"])


def short_name(name):
    """A function's name without its file and the namespaces in it."""
    name = re.sub(r"(?:[A-Za-z_]\w*::)+", "", re.sub(r" \([^()]*:\d+\)$", "", name))
    return name if len(name) <= MOST_LETTERS else name[:MOST_LETTERS - 3] + "..."
