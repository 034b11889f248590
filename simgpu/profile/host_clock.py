"""The host's own time between calls, from when the simulated calls began and how long they took.

The simulation costs much more than a real launch, so what calls took is left out. So is the part of a gap in which
another thread was within a simulated call: a thread that waits for another one's work waits for the simulation.
"""

import bisect

# Threads that ask whether something is done, in a loop: how often depends on how long the simulation takes.
POLLING = {"query"}


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


def gaps(records, scale=1.0, fixed=None):
    """{record id: microseconds of its thread's own work before the call}.

    `scale` is how much slower the real host is than the one that ran the simulation; with `fixed` every gap is
    taken to be that long instead.
    """
    threads = {}
    for record in records:
        if "graph_launch" not in record:
            threads.setdefault(record["thread"], []).append(record)
    spans = {thread: [(call["host_us"], call["host_us"] + call["call_us"]) for call in calls]
             for thread, calls in threads.items()}
    found = {}
    for thread, calls in threads.items():
        others = Calls([span for other, own in spans.items() if other != thread for span in own])
        polls = all(call["kind"] in POLLING for call in calls)
        end = None
        for call in calls:
            begin = call["host_us"]
            own = 0.0 if end is None or polls else max(0.0, begin - end - others.within(end, begin))
            found[call["id"]] = own * scale if fixed is None or end is None or polls else fixed
            end = begin + call["call_us"]
    return found
