"""One rank's profile replayed as one of many: what the network takes when ranks and nodes are more.

Each rank is taken to compute what the profiled one computed. Ranks of several nodes differ, and all wait for the
slowest: a share of the step for each doubling of nodes, fitted on steps of up to 64 nodes (devices/nccl.json).
"""

import dataclasses
import math

import device as devices
import job
import timeline as timelines
import window as windows
from records import Profile

# Calls whose count is a rank's share of the whole.
SHARED_OUT = {"AllGather", "ReduceScatter"}
MOST_RANKS = 16384


def of_many(profile, ranks):
    """The profile as it would be in a job of so many ranks: communicators of all its ranks grow to all of them."""
    records = []
    for record in profile.records:
        if record["kind"] == "collective" and record["ranks"] == profile.ranks:
            calls = [dict(call, count=math.ceil(call["count"] * profile.ranks / ranks))
                     if call["op"] in SHARED_OUT else call for call in record["calls"]]
            record = dict(record, ranks=ranks, calls=calls)
        records.append(record)
    return Profile(dict(profile.header, ranks=ranks), records)


def straggling(nodes, case, shares=None):
    """Share of the step for which ranks of so many nodes wait for the slowest."""
    shares = shares or devices.read("nccl")["stragglers"]["share_of_a_doubling"]
    return (1 + shares[timelines.CASES.index(case)]) ** math.log2(nodes) - 1


@dataclasses.dataclass(frozen=True)
class Scaled:
    """A step of so many ranks; times in microseconds, in three cases."""
    ranks: int
    nodes: int
    time: dict
    exposed: float
    efficiency: float


def replay(profile, device, ranks, nodes, window_of=windows.last_step, options=timelines.Options(), efa=False):
    """The Scaled step. Efficiency is against a rank alone, whose collectives move nothing."""
    if not 1 <= ranks <= MOST_RANKS:
        raise ValueError(f"{ranks} ranks: the model of the network is for 1 to {MOST_RANKS}")
    alone = job.predict([of_many(profile, 1)], device, window_of, options).slowest().time
    result = job.predict([of_many(profile, ranks)], device, window_of, options, nodes, efa)
    time = {case: result.slowest(case).time * (1 + straggling(nodes, case)) for case in timelines.CASES}
    return Scaled(ranks, nodes, time, result.slowest().exposed, alone / time["expected"])


def table(scaled):
    """Text, one line a number of ranks."""
    yield f"{'ranks':>7} {'nodes':>6} {'step ms':>10} {'from':>10} {'to':>10} {'exposed ms':>11} {'efficiency':>11}"
    for row in scaled:
        yield (f"{row.ranks:>7} {row.nodes:>6} {row.time['expected'] / 1e3:>10.2f} {row.time['low'] / 1e3:>10.2f} "
               f"{row.time['high'] / 1e3:>10.2f} {row.exposed / 1e3:>11.2f} {100 * row.efficiency:>9.1f} %")
