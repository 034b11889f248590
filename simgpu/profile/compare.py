"""Two results side by side: two versions of a program, two programs, or two devices."""

import measures
from report import duration, size

BIGGEST_CHANGES = 12


def figures(result):
    """{name: (value, how it is written)} of a step."""
    step = result.slowest()
    return {"step": (step.time, duration), "computation": (step.compute, duration),
            "exposed exchange": (step.exposed, duration), "idle": (step.idle, duration),
            "waiting for launches": (step.launch_bound, duration), "launches": (step.launches, str),
            "host waits": (sum(times for times, _ in step.waits.values()), str), "bytes": (step.bytes, size),
            "FLOPs": (step.flops, "{:.3g}".format)}


def by_what(result):
    """{name: microseconds} of all work."""
    totals = {}
    for name, _, _, _, microseconds, _ in measures.costs(result.slowest()):
        totals[name] = totals.get(name, 0.0) + microseconds
    return totals


def text(first, second):
    """A table of the figures, the first over the second, and of the work whose time differs most."""
    out = [f"{'':24} {first.title[:20]:>20} {second.title[:20]:>20} {'ratio':>7}",
           f"{'':24} {first.device.name[:20]:>20} {second.device.name[:20]:>20}"]
    others = figures(second)
    for name, (value, written) in figures(first).items():
        other = others[name][0]
        ratio = f"{value / other:7.2f}" if other else f"{'-':>7}"
        out.append(f"{name:24} {written(value):>20} {written(other):>20} {ratio}")
    before, after = by_what(first), by_what(second)
    changes = sorted(before.keys() | after.keys(), key=lambda name: -abs(after.get(name, 0) - before.get(name, 0)))
    out += ["", f"{'first':>10} {'second':>10}  differs most"]
    for name in changes[:BIGGEST_CHANGES]:
        out.append(f"{duration(before.get(name, 0)):>10} {duration(after.get(name, 0)):>10}  {name}")
    return "\n".join(out) + "\n"
