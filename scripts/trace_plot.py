#!/usr/bin/env python3
"""Draws one step of a Chrome trace (train_gpt --trace, parallel::ChromeTrace): for each rank what it
computes, and below it the reductions of its buckets.

    trace_plot.py TRACE [-o PLOT.svg] [--step N]
    trace_plot.py --self-test

A bucket's bar is from the first moment that the rank works on its reduction to the last, waiting for
other ranks included; what reaches past the end of backward is exposed. Needs Python alone.
"""

import argparse
import html
import json
import pathlib
import sys

WIDTH, LEFT, RIGHT, TOP, ROW, GAP, BOTTOM = 960, 64, 12, 46, 22, 14, 40
COMPUTE = {"update, forward": "#4e79a7", "backward": "#59a14f", "wait for buckets": "#e15759"}
BUCKETS = ("#b07aa1", "#9c755f", "#f28e2b", "#76b7b2", "#edc948", "#ff9da7")
COMPUTATION, COMMUNICATION = 0, 1


def steps_of(events, rank):
    """[(computation, buckets)] of a rank's backwards; each an event with begin and end in ms."""
    spans = [{"name": e["name"], "track": e["tid"], "begin": e["ts"] / 1e3,
              "end": (e["ts"] + e["dur"]) / 1e3, "bytes": e["args"].get("bytes")}
             for e in events if e["ph"] == "X" and e["pid"] == rank]
    steps = []
    for span in spans:
        if span["name"] == "update, forward":
            steps.append(([], []))
        if steps:
            steps[-1][span["track"] == COMMUNICATION].append(span)
    return steps


def bar(span, x, y, colour, label):
    """A rectangle with its name where there is room for it, and as a tooltip."""
    width = max(1.0, x(span["end"]) - x(span["begin"]))
    name = html.escape(f'{span["name"]}: {span["end"] - span["begin"]:.2f} ms')
    out = (f'<rect x="{x(span["begin"]):.1f}" y="{y}" width="{width:.1f}" height="{ROW}" '
           f'fill="{colour}"><title>{name}</title></rect>')
    if width > 7 * len(label):
        out += (f'<text x="{x(span["begin"]) + 4:.1f}" y="{y + 15}" fill="white">'
                f'{html.escape(label)}</text>')
    return out


def label_of(span):
    """A short name: "bucket 2, 4.5 MB"."""
    return f'{span["name"].split(" (")[0]}, {span["bytes"] / 1e6:.1f} MB'


def plot(ranks):
    """The SVG document of {rank: (computation, buckets)}."""
    spans = [span for step in ranks.values() for part in step for span in part]
    begin, end = min(s["begin"] for s in spans), max(s["end"] for s in spans)
    height = TOP + len(ranks) * (2 * ROW + GAP) + BOTTOM

    def x(moment):
        return LEFT + (WIDTH - LEFT - RIGHT) * (moment - begin) / (end - begin)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
           'font-family="sans-serif" font-size="11">',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           f'<text x="{LEFT}" y="20" font-size="14">One step of {len(ranks)} ranks: computation, '
           'and below it the reductions of buckets</text>']
    for row, (rank, (computation, buckets)) in enumerate(ranks.items()):
        y = TOP + row * (2 * ROW + GAP)
        out.append(f'<text x="8" y="{y + ROW + 4}">rank {rank}</text>')
        out += [bar(span, x, y, COMPUTE[span["name"]], span["name"]) for span in computation]
        out += [bar(span, x, y + ROW, BUCKETS[number % len(BUCKETS)], label_of(span))
                for number, span in enumerate(buckets)]
    foot = height - BOTTOM + 10
    for tick in range(6):
        moment = begin + (end - begin) * tick / 5
        anchor = "end" if tick == 5 else "middle"
        out.append(f'<line x1="{x(moment):.1f}" x2="{x(moment):.1f}" y1="{TOP - 6}" y2="{foot}" '
                   f'stroke="#ccc"/><text x="{x(moment):.1f}" y="{foot + 14}" '
                   f'text-anchor="{anchor}">{moment - begin:.1f} ms</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def draw(trace, number):
    """The plot of one step, counted from 0; negative from the end."""
    events = trace["traceEvents"]
    ranks = {}
    for rank in sorted({event["pid"] for event in events}):
        steps = steps_of(events, rank)
        if not -len(steps) <= number < len(steps):
            sys.exit(f"trace_plot.py: rank {rank} has {len(steps)} steps, none with number {number}")
        ranks[rank] = steps[number]
    if not ranks:
        sys.exit("trace_plot.py: no ranks in this trace")
    return plot(ranks)


def self_test():
    """Two ranks, two steps of one bucket."""
    def event(rank, name, track, begin, duration, **arguments):
        return {"ph": "X", "name": name, "pid": rank, "tid": track, "ts": begin, "dur": duration,
                "args": arguments}
    events = [{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "rank 0"}}]
    for rank in range(2):
        for at in (0, 1000):
            events += [event(rank, "update, forward", COMPUTATION, at, 400),
                       event(rank, "backward", COMPUTATION, at + 400, 500),
                       event(rank, "wait for buckets", COMPUTATION, at + 900, 100),
                       event(rank, "bucket 0 (a.weight)", COMMUNICATION, at + 500, 500,
                             bytes=4000000)]
    svg = draw({"traceEvents": events}, -1)
    assert svg.count("<rect") == 1 + 2 * 4 and svg.count("bucket 0, 4.0 MB") == 2, svg
    assert len(steps_of(events, 1)) == 2 and len(steps_of(events, 1)[0][1]) == 1
    print("trace_plot.py: self-test passed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", nargs="?", type=argparse.FileType())
    parser.add_argument("-o", "--out", type=pathlib.Path, default=pathlib.Path("step.svg"))
    parser.add_argument("--step", type=int, default=-2, help="from 0, or from the end if negative")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    if not arguments.trace:
        parser.error("which trace?")
    arguments.out.write_text(draw(json.load(arguments.trace), arguments.step))
    return None


if __name__ == "__main__":
    main()
