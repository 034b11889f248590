#!/usr/bin/env python3
"""Makes a table, a CSV file and a plot of what benchmark_scaling measured, one JSON object a line.

    scaling_report.py LINES --out DIR
    scaling_report.py --self-test

Efficiency is the time that a step would take if ranks took nothing from each other, over its time:
that of the fewest ranks measured, with strong scaling divided by how many times more ranks there
are. What is lost is told apart: `machine`, what steps are slower where all ranks train at once
without a word between them (shared memory and caches, or batches too small to fill a device);
`exposed`, waiting for averages that nothing hides; `overlap`, what exchanging slows down the rest
of the step, and ranks wait for the slowest. Needs Python alone.
"""

import argparse
import csv
import json
import pathlib
import sys
import tempfile

PHASES = (("forward_ms", "forward", "#4e79a7"), ("backward_ms", "backward", "#59a14f"),
          ("exposed_ms", "exposed communication", "#e15759"), ("optimizer_ms", "optimizer", "#edc948"))
COLOURS = {"weak": "#4e79a7", "strong": "#f28e2b"}
WIDTH, HEIGHT, MARGIN = 1000, 420, 60


def with_losses(points):
    """Each point of one mode with its efficiency, and what it loses in ms, by cause."""
    points = sorted(points, key=lambda point: point["ranks"])
    first = points[0]
    rows = []
    for point in points:
        times_more = point["ranks"] / first["ranks"]
        ideal = first["step_ms"] / (times_more if point["mode"] == "strong" else 1)
        machine = point["apart_ms"] - ideal
        exposed = point["exposed_ms"]
        losses = {"machine": machine, "exposed": exposed,
                  "overlap": point["step_ms"] - point["apart_ms"] - exposed}
        largest = max(losses, key=losses.get)
        is_small = point is first or losses[largest] <= 0.02 * point["step_ms"]
        rows.append({**point, "efficiency": ideal / point["step_ms"],
                     **{f"{cause}_loss_ms": loss for cause, loss in losses.items()},
                     "limit": "none" if is_small else largest})
    return rows


def table(rows):
    """Aligned text."""
    columns = ("mode", "ranks", "hosts", "batch_a_rank", "step_ms", "efficiency", "hidden_share",
               "machine_loss_ms", "exposed_loss_ms", "overlap_loss_ms", "limit")
    cells = [[column.removesuffix("_ms").replace("_", " ") for column in columns]]
    for row in rows:
        cells.append([f"{row[column]:.4g}" if isinstance(row[column], float) else str(row[column])
                      for column in columns])
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths))
                     for line in cells)


def curve(rows, x, y, colour):
    """Points of one mode, joined."""
    corners = " ".join(f"{x(row['ranks']):.1f},{y(row['efficiency']):.1f}" for row in rows)
    dots = "".join(f'<circle cx="{x(row["ranks"]):.1f}" cy="{y(row["efficiency"]):.1f}" r="4" '
                   f'fill="{colour}"/>' for row in rows)
    return f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}'


def efficiency_panel(modes):
    """Efficiency over the number of ranks, evenly spaced."""
    counts = sorted({row["ranks"] for rows in modes.values() for row in rows})
    width, height = WIDTH / 2 - 2 * MARGIN, HEIGHT - 2 * MARGIN
    top = max(1.0, *(row["efficiency"] for rows in modes.values() for row in rows))

    def x(ranks):
        return MARGIN + width * counts.index(ranks) / max(1, len(counts) - 1)

    def y(efficiency):
        return MARGIN + height * (1 - efficiency / top)

    out = [f'<text x="{MARGIN}" y="30" font-size="15">Efficiency</text>']
    for value in (0, 0.25, 0.5, 0.75, 1):
        out.append(f'<line x1="{MARGIN}" x2="{MARGIN + width}" y1="{y(value):.1f}" '
                   f'y2="{y(value):.1f}" stroke="#ddd"/><text x="{MARGIN - 6}" '
                   f'y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for ranks in counts:
        out.append(f'<text x="{x(ranks):.1f}" y="{HEIGHT - MARGIN + 18}" '
                   f'text-anchor="middle">{ranks}</text>')
    for number, (mode, rows) in enumerate(modes.items()):
        out.append(curve(rows, x, y, COLOURS[mode]))
        out.append(f'<text x="{MARGIN + 8}" y="{HEIGHT - MARGIN - 24 + 16 * number}" '
                   f'fill="{COLOURS[mode]}">{mode} scaling</text>')
    out.append(f'<text x="{MARGIN + width / 2}" y="{HEIGHT - 14}" text-anchor="middle">ranks</text>')
    return out


def phases_panel(modes):
    """A stacked bar of the step's phases for each point."""
    left, width, height = WIDTH / 2 + MARGIN / 2, WIDTH / 2 - 1.5 * MARGIN, HEIGHT - 2 * MARGIN - 30
    rows = [row for rows in modes.values() for row in rows]
    top = max(sum(row[key] for key, _, _ in PHASES) for row in rows)
    out = [f'<text x="{left}" y="30" font-size="15">Milliseconds of a step, mean over ranks</text>']
    slot = width / len(rows)
    for number, row in enumerate(rows):
        at, below = left + slot * number, MARGIN + 30 + height
        for key, _, colour in PHASES:
            size = height * row[key] / top
            below -= size
            out.append(f'<rect x="{at:.1f}" y="{below:.1f}" width="{slot * 0.7:.1f}" '
                       f'height="{size:.1f}" fill="{colour}"/>')
        out.append(f'<text x="{at + slot * 0.35:.1f}" y="{below - 4:.1f}" text-anchor="middle">'
                   f'{row["step_ms"]:.4g}</text><text x="{at + slot * 0.35:.1f}" '
                   f'y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{row["mode"]} '
                   f'{row["ranks"]}</text>')
    at = left
    for _, name, colour in PHASES:
        out.append(f'<rect x="{at}" y="42" width="10" height="10" fill="{colour}"/>'
                   f'<text x="{at + 14}" y="52">{name}</text>')
        at += 36 + 6.2 * len(name)
    return out


def svg_of(modes):
    """The plot as one SVG document."""
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
                      'font-family="sans-serif" font-size="11">',
                      f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
                      *efficiency_panel(modes), *phases_panel(modes), "</svg>"]) + "\n"


def report(lines, out):
    """Writes the files and prints the table."""
    points = [json.loads(line) for line in lines if line.startswith("{")]
    if not points:
        sys.exit("no measured points: benchmark_scaling prints them with --json")
    devices = sorted({point.get("device", "") for point in points})
    if len(devices) > 1:
        sys.exit(f"points were measured on {' and on '.join(devices)}, whose times say nothing of "
                 "each other: give --device, or --ranks of which each has a GPU")
    modes = {mode: with_losses([point for point in points if point["mode"] == mode])
             for mode in COLOURS if any(point["mode"] == mode for point in points)}
    rows = [row for rows in modes.values() for row in rows]
    print(table(rows))
    with open(out / "scaling.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    (out / "scaling.svg").write_text(svg_of(modes))
    return rows


def self_test():
    """Points with a known cause of what they lose."""
    def point(mode, ranks, step, apart, exposed, device="cpu"):
        return json.dumps({"benchmark": "scaling", "mode": mode, "ranks": ranks, "hosts": 1,
                           "device": device,
                           "batch_a_rank": 4, "step_ms": step, "apart_ms": apart,
                           "forward_ms": 30.0, "backward_ms": 50.0, "exposed_ms": exposed,
                           "optimizer_ms": 5.0, "hidden_share": 0.5})
    lines = [point("weak", 4, 150.0, 140.0, 5.0), point("weak", 1, 100.0, 100.0, 0.0),
             point("weak", 2, 101.0, 100.0, 0.5), point("strong", 1, 100.0, 100.0, 0.0),
             point("strong", 2, 80.0, 52.0, 25.0), point("strong", 4, 60.0, 26.0, 4.0)]
    with tempfile.TemporaryDirectory() as folder:
        rows = report(lines, pathlib.Path(folder))
        assert [row["limit"] for row in rows] == ["none", "none", "machine", "none", "exposed",
                                                  "overlap"], rows
        assert rows[2]["efficiency"] == 100 / 150 and rows[4]["efficiency"] == 50 / 80
        plot = (pathlib.Path(folder) / "scaling.svg").read_text()
        assert plot.count("<polyline") == 2 and plot.count("<circle") == 6
        assert len((pathlib.Path(folder) / "scaling.csv").read_text().splitlines()) == 7
        try:
            report([*lines, point("weak", 8, 1.0, 1.0, 0.0, "cuda")], pathlib.Path(folder))
            raise AssertionError("points of two devices in one table")
        except SystemExit as end:
            assert "on cpu and on cuda" in str(end), end
    print("scaling_report.py: self-test passed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lines", nargs="?", type=argparse.FileType())
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    if not arguments.lines:
        parser.error("which measurements?")
    report(arguments.lines, arguments.out)
    return None


if __name__ == "__main__":
    main()
