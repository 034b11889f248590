"""The host's own time between calls, from when the simulated calls began and how long they took.

The simulation costs much more than a real launch, so what calls took is left out. So is the part of a gap in which
another thread was within a simulated call: a thread that waits for another one's work waits for the simulation.

A machine that simulates is busy: single gaps are a thousand times too long where a thread had to wait for a core.
So a gap counts as the median of those between the same two calls, over the whole profile.

Only threads that launch work have work of their own. What others do between calls (a loader, one that asks whether
collectives are done) is mostly waiting for them, which nothing recorded tells from work.
"""

import bisect
import statistics

from records import DEVICE_KINDS

LAUNCHES = DEVICE_KINDS | {"graph_launch"}
# A thread launches work of its own with this share of the launches of the one that has most.
LEAST_SHARE = 0.2


class Calls:
    """Merged spans of calls, to ask how much of a span they cover."""

    def __init__(self, spans):
        self.begins, self.ends = [], []
        for begin, end in sorted(spans):
            if self.ends and begin <= self.ends[-1]:
                self.ends[-1] = max(self.ends[-1], end)
            else:
                self.begins.append(begin)
                self.ends.append(end)

    def within(self, begin, end):
        covered, at = 0.0, max(0, bisect.bisect_right(self.begins, begin) - 1)
        while at < len(self.begins) and self.begins[at] < end:
            covered += max(0.0, min(end, self.ends[at]) - max(begin, self.begins[at]))
            at += 1
        return covered


def place_of(record):
    """What tells a call of the program from another."""
    return record["kind"], record["name"], record.get("op"), record["site"]


def by_thread(records):
    """{thread: its calls}, nodes of graphs left out."""
    threads = {}
    for record in records:
        if "graph_launch" not in record:
            threads.setdefault(record["thread"], []).append(record)
    return threads


def launching(records):
    """The threads that launch work."""
    counts = {thread: sum(call["kind"] in LAUNCHES for call in calls) for thread, calls in by_thread(records).items()}
    most = max(counts.values(), default=0)
    return {thread for thread, count in counts.items() if count >= LEAST_SHARE * most}


def gaps(records, scale=1.0, fixed=None):
    """{record id: microseconds of its thread's own work before the call}.

    `scale` is how much slower the real host is than the one that ran the simulation; with `fixed` every gap is
    taken to be that long instead.
    """
    threads, launch = by_thread(records), launching(records)
    spans = {thread: [(call["host_us"], call["host_us"] + call["call_us"]) for call in calls]
             for thread, calls in threads.items()}
    found, alike = {}, {}
    for thread, calls in threads.items():
        others = Calls([span for other, own in spans.items() if other != thread for span in own])
        found.update((call["id"], 0.0) for call in calls)
        for before, call in zip(calls, calls[1:] if thread in launch else []):
            end, begin = before["host_us"] + before["call_us"], call["host_us"]
            own = max(0.0, begin - end - others.within(end, begin))
            alike.setdefault((thread, place_of(before), place_of(call)), []).append((call["id"], own))
    for same in alike.values():
        usual = statistics.median_low(own for _, own in same) * scale if fixed is None else fixed
        found.update((number, usual) for number, _ in same)
    return found
