"""A table of steps, a row each; a model too large to be profiled is a small one, and what more layers add."""

import measures
from report import duration, size

COLUMNS = ("step", "predicted", "MFU", "launches", "bytes", "bound by")
LEAST_SHARE = 0.01  # of the work, for a bound to be named


def figures(result):
    """What adds up over layers."""
    step = result.slowest()
    low, high = result.limits()
    bound = {}
    for row in measures.costs(step):
        bound[row[2]] = bound.get(row[2], 0.0) + row[4]
    return {"time": step.time, "low": low, "high": high, "launches": step.launches, "bytes": step.bytes,
            "flops": step.flops, **{("bound", name): time for name, time in bound.items()}}


def grown(small, large, times):
    """`small`, and `times` times what `large` has more."""
    return {name: small.get(name, 0) + times * (large.get(name, 0) - small.get(name, 0)) for name in small | large}


def row(name, of, peak):
    bounds = sorted(((time, key[1]) for key, time in of.items() if isinstance(key, tuple)), reverse=True)
    whole = sum(time for time, _ in bounds)
    named = [f"{bound} {100 * time / whole:.0f} %" for time, bound in bounds if time >= LEAST_SHARE * whole]
    return (name, f"{duration(of['time'])} ({duration(of['low'])} to {duration(of['high'])})",
            f"{100 * of['flops'] / (peak * of['time'] * 1e-6):.0f} %", f"{of['launches']:.0f}", size(of["bytes"]),
            ", ".join(named))


def text(rows):
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)]) + "\n"
