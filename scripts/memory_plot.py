#!/usr/bin/env python3
"""Draws who held a device's memory over time, from a snapshot (dump_memory_snapshot).

    memory_plot.py SNAPSHOT [-o PLOT.svg] [--by tag|module|op] [--areas N]
    memory_plot.py --self-test

Each area is one tag's live bytes, those with the largest peaks by name, the others together. What
was allocated before the recording began lies at the bottom. Needs Python alone.
"""

import argparse
import collections
import html
import json
import pathlib
import sys

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LEGEND = 960, 420, 76, 48, 44, 330
COLOURS = ("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#ff9da7",
           "#9c755f", "#bab0ac", "#1f77b4", "#2ca02c", "#8c564b", "#17becf")
BEFORE, OTHERS = "before the recording", "all others"


def area_of(tag, by):
    """What of a tag ("blocks.3.fc1: linear backward") is drawn by."""
    module, _, op = tag.rpartition(": ")
    if by == "module":
        return module or op
    return (op or module) if by == "op" else tag


def timeline(events, live_at_end, by):
    """[(microseconds, {area: live bytes})] after each event, with what was there before them."""
    live, owners, known = collections.Counter(), {}, 0
    points = []
    for event in events:
        if event["action"] == "alloc":
            frames = event["frames"]
            owners[event["addr"]] = area_of(frames[0]["name"] if frames else "untagged", by)
            live[owners[event["addr"]]] += event["size"]
            known += event["size"]
        elif event["action"] == "free_completed":
            live[owners.pop(event["addr"], BEFORE)] -= event["size"]
            known -= event["size"]
        else:
            continue
        points.append((event["time_us"], dict(live)))
    before = live_at_end - known
    for _, bytes_of in points:
        bytes_of[BEFORE] = bytes_of.get(BEFORE, 0) + before
    return points


def areas_of(points, count):
    """The areas from the bottom to the top: what was before, the largest peaks, the others."""
    peaks = collections.Counter()
    for _, bytes_of in points:
        for area, size in bytes_of.items():
            peaks[area] = max(peaks[area], size)
    named = [area for area, _ in peaks.most_common() if area != BEFORE][:count]
    return [BEFORE] + named + [OTHERS], peaks


def stacked(points, areas):
    """For each point the heights of the areas, in their order."""
    named = set(areas)
    for time, bytes_of in points:
        heights = [bytes_of.get(area, 0) for area in areas[:-1]]
        heights.append(sum(size for area, size in bytes_of.items() if area not in named))
        yield time, heights


def in_units(size):
    """A size as people write it."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} B"


def svg_of(points, title, count):
    """The plot as one SVG document."""
    areas, peaks = areas_of(points, count)
    rows = list(stacked(points, areas))
    top = max(sum(heights) for _, heights in rows)
    first, last = rows[0][0], max(rows[-1][0], rows[0][0] + 1)
    plot_width, plot_height = WIDTH - LEFT - LEGEND, HEIGHT - TOP - BOTTOM

    def x(time):
        return LEFT + plot_width * (time - first) / (last - first)

    def y(size):
        return TOP + plot_height * (1 - size / top)

    # More corners than can be seen only cost: of each three pixels the point with the most memory.
    columns = {}
    for time, heights in rows:
        column = int(x(time) / 3)
        if column not in columns or sum(heights) > sum(columns[column][1]):
            columns[column] = (time, heights)
    rows = [columns[column] for column in sorted(columns)]

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="24" font-size="15">{html.escape(title)}</text>']
    for step in range(5):
        size = top * step / 4
        out.append(f'<line x1="{LEFT}" x2="{LEFT + plot_width}" y1="{y(size):.1f}" '
                   f'y2="{y(size):.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{y(size) + 4:.1f}" text-anchor="end">'
                   f'{in_units(size)}</text>')
    below = [0] * len(rows)
    for index, area in enumerate(areas):
        above = [low + heights[index] for low, (_, heights) in zip(below, rows)]
        colour = "#d0d0d0" if area == BEFORE else COLOURS[(index - 1) % len(COLOURS)]
        if area == OTHERS:
            colour = "#707070"
        upper = [f"{x(row[0]):.1f},{y(size):.1f}" for row, size in zip(rows, above)]
        lower = [f"{x(row[0]):.1f},{y(size):.1f}" for row, size in zip(rows, below)]
        if above != below:
            out.append(f'<polygon points="{" ".join(upper + lower[::-1])}" fill="{colour}"/>')
        at = TOP + 18 * (len(areas) - 1 - index)
        size = f", {in_units(peaks[area])}" if area != OTHERS else ""
        out.append(f'<rect x="{WIDTH - LEGEND + 16}" y="{at}" width="12" height="12" '
                   f'fill="{colour}"/><text x="{WIDTH - LEGEND + 34}" y="{at + 11}">'
                   f'{html.escape(area)}{size}</text>')
        below = above
    for step in range(5):
        time = first + (last - first) * step / 4
        out.append(f'<text x="{x(time):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
                   f'{(time - first) / 1000:.3g} ms</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def plot(snapshot, by, count):
    """The SVG of the first device of a snapshot."""
    counts = snapshot["lockstep"][0]
    points = timeline(snapshot["device_traces"][0], counts["live_bytes"], by)
    if not points:
        sys.exit("the snapshot has no events: record them with record_memory_history")
    title = (f"Memory of {counts['device']}: at most {in_units(counts['peak_live_bytes'])} live, "
             f"{in_units(counts['peak_reserved_bytes'])} reserved")
    return svg_of(points, title, count)


def self_test():
    """Draws a made-up history and looks at what is in it."""
    def event(action, address, size, time, tag):
        return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time,
                "frames": [{"name": tag, "filename": "", "line": 0}] if tag else []}
    events = [event("alloc", 1, 100, 0, "fc: linear"), event("segment_alloc", 9, 999, 1, ""),
              event("free_completed", 7, 50, 2, ""), event("alloc", 2, 30, 3, "fc: relu"),
              event("free_completed", 1, 100, 4, "fc: linear")]
    points = timeline(events, 40, "tag")
    assert [sum(sizes.values()) for _, sizes in points] == [160, 110, 140, 40], points
    assert points[0][1] == {"fc: linear": 100, BEFORE: 60}
    assert points[-1][1] == {"fc: linear": 0, "fc: relu": 30, BEFORE: 10}
    assert timeline(events, 40, "module")[2][1] == {"fc": 130, BEFORE: 10}
    assert area_of("fc: relu backward", "op") == "relu backward"
    counts = {"device": "cpu", "live_bytes": 40, "peak_live_bytes": 160, "peak_reserved_bytes": 999}
    drawn = plot({"device_traces": [events], "lockstep": [counts]}, "tag", 1)
    assert drawn.count("<polygon") == 3 and "fc: linear, 100 B" in drawn and OTHERS in drawn
    print("memory_plot.py: self-test passed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("snapshot", nargs="?", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, help="default: SNAPSHOT.svg")
    parser.add_argument("--by", choices=("tag", "module", "op"), default="tag")
    parser.add_argument("--areas", type=int, default=12, help="tags drawn by name")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    if not arguments.snapshot:
        parser.error("which snapshot?")
    output = arguments.output or arguments.snapshot.with_suffix(".svg")
    output.write_text(plot(json.loads(arguments.snapshot.read_text()), arguments.by,
                           arguments.areas))
    return None


if __name__ == "__main__":
    main()
