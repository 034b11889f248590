#!/usr/bin/env python3
"""Predicted beside measured times of a step's kernels and products.

    kernel_comparison.py PROFILE TIMES [--device h100] [--rows 30]

PROFILE is what the simulated GPU recorded of a step, TIMES what kernel_times (benchmarks/cupti) recorded of the same program
on a GPU. Kernels of the library's own are joined by name and order; what stands between two of them, in cuBLASLt's and
cuDNN's kernels, belongs to the products, attentions and convolutions that the profile has there, and is told apart by name
(library_kernels.py).
"""

import argparse
import collections
import gzip
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "simgpu" / "profile"))

import device as devices  # noqa: E402
import library_kernels  # noqa: E402
import measures  # noqa: E402
import records  # noqa: E402
import timeline  # noqa: E402
import window  # noqa: E402
from model import Model  # noqa: E402

# Share of a step's kernels that is to be found by names with template arguments.
ENOUGH = 0.9
LIBRARY_CALLS = ("product", "attention", "convolution", "cudnn")
# A namespace without a name, as compilers and as ncu write it.
UNNAMED = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::")


def read_profile(path):
    """A profile, also a compressed one."""
    path = pathlib.Path(path)
    if path.suffix != ".gz":
        return records.read(path)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return records.parse(lines, path.name)


def read_times(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def base_name(name):
    """A kernel's name alone: of the simulated GPU's "f<4, X> (file:1)" and of "void a::(anonymous namespace)::f<4, X>(int)"."""
    name = UNNAMED.sub("", name)
    head = re.split(r"[<(]", re.sub(r"^(?:void|static|auto) ", "", name), maxsplit=1)[0].strip()
    return head.split("::")[-1].split(" ")[-1]


def full_name(name):
    """The same with its template arguments, without namespaces."""
    name = UNNAMED.sub("", re.sub(r" \([^()]*:\d+\)$", "", name))
    name = re.sub(r"(?:[A-Za-z_]\w*::)+", "", re.sub(r"^void ", "", name))
    depth = 0
    for place, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            name = name[:place]
            break
    return name.replace(" ", "")


def is_own(entry):
    return entry["kind"] == "kernel" and "lockstep::" in entry["name"]


def predicted_step(profile, device):
    """The work of the profile's last whole step, in the order of its launches."""
    model = Model(device, profile.ranks)
    made = timeline.of([profile], model, timeline.Options(host_gap=2.0))
    return measures.step_of(made, profile.rank, window.last_step(profile))


def pairs_of(wanted, names):
    """[(place in `wanted`, place in `names`)]: the last run of a sequence within a longer one; of as much of it as is there,
    where kernels lie between that were not expected."""
    size = len(wanted)
    for begin in range(len(names) - size, -1, -1):
        if names[begin:begin + size] == wanted:
            return [(number, begin + number) for number in range(size)]
    begin = max(0, len(names) - size * 5 // 4 - 1)
    return [(at, begin + place) for at, place in longest_common(wanted, names[begin:])]


def longest_common(first, second):
    """The places of a longest common subsequence, as late as can be."""
    lengths = [[0] * (len(second) + 1)]
    for left in first:
        above, row = lengths[-1], [0]
        for place, right in enumerate(second):
            row.append(above[place] + 1 if left == right else max(above[place + 1], row[place]))
        lengths.append(row)
    found, at, place = [], len(first), len(second)
    while at and place:
        if first[at - 1] == second[place - 1]:
            at, place = at - 1, place - 1
            found.append((at, place))
        elif lengths[at - 1][place] >= lengths[at][place - 1]:
            at -= 1
        else:
            place -= 1
    return found[::-1]


class Row:
    """All work of one label. `helpers`: kernels of a library beside the one that computes, {name: [launches, microseconds]};
    `calls`: (record, what was measured) of each, in order; a call that was told apart knows its kernels."""

    def __init__(self):
        self.times, self.predicted, self.measured, self.bytes = 0, 0.0, 0.0, 0.0
        self.helpers, self.calls = {}, []


def split(work, is_boundary):
    """[(what stands before, boundary)] and what stands after the last one."""
    parts, between = [], []
    for piece in work:
        if is_boundary(piece):
            parts.append((between, piece))
            between = []
        else:
            between.append(piece)
    return parts, between


def compare(step, times):
    """(rows by (kind, label), words about what could not be joined)."""
    expected, rest = split(step.work, lambda piece: piece.record["kind"] == "kernel")
    found, rest_found = split(times, is_own)
    for name in (full_name, base_name):  # compilers may write template arguments in several ways
        pairs = pairs_of([name(piece.record["name"]) for _, piece in expected], [name(entry["name"]) for _, entry in found])
        if len(pairs) >= ENOUGH * len(expected):
            break
    rows, words, last = collections.defaultdict(Row), [], None
    for at, place in pairs:
        first, begin = (last[0] + 1, last[1] + 1) if last else (0, place)
        join_calls(rows, [piece for before, _ in expected[first:at + 1] for piece in before],
                   [entry for others, _ in found[begin:place + 1] for entry in others], words)
        put(rows, expected[at][1], found[place][1]["us"], [found[place][1]])
        last = at, place
    if last:
        after = found[last[1] + 1][0] if last[1] + 1 < len(found) else rest_found
        join_calls(rows, rest, after[:len(rest)], words)
    if len(pairs) < len(expected):
        words.append(f"{len(expected) - len(pairs)} of {len(expected)} kernels of a step did not run in that order")
    return rows, words


def label(record):
    """What a row is called: products by shape and epilogue, for it may be a kernel of its own."""
    epilogue = record.get("epilogue")
    return measures.label(record) + (f" {epilogue}" if epilogue else "")


def put(rows, piece, measured, kernels=()):
    row = rows[piece.record["kind"], label(piece.record)]
    row.times += 1
    row.predicted += piece.duration
    row.measured += measured
    row.bytes += piece.prediction.bytes
    row.calls.append((piece.record, measured, kernels))
    for entry in kernels:
        if piece.record["kind"] != "kernel" and library_kernels.is_helper(entry["name"]):
            count = row.helpers.setdefault(library_kernels.helper_name(entry["name"]), [0, 0.0])
            count[0] += 1
            count[1] += entry["us"]


def join_calls(rows, pieces, entries, words):
    """Gives the kernels of libraries that ran between two of our own to the calls that were made there: by their names, else
    in shares as predicted."""
    calls = [piece for piece in pieces if piece.record["kind"] in LIBRARY_CALLS]
    ran = [entry for entry in entries if entry["kind"] == "kernel"]
    if not calls:
        return
    groups = [ran] if len(calls) == 1 else library_kernels.matched([piece.record["kind"] for piece in calls], ran)
    if groups:
        for piece, group in zip(calls, groups):
            put(rows, piece, sum(entry["us"] for entry in group), group)
    else:
        whole = sum(piece.duration for piece in calls)
        for piece in calls:
            put(rows, piece, sum(entry["us"] for entry in ran) * piece.duration / whole)
        words.append(f"{len(ran)} kernels for {len(calls)} calls in a row: shared out as predicted")


def lines_of(rows):
    """A dictionary a row, what took longest first; then one for each helper of libraries, whose time the rows have already."""
    found = []
    for (kind, what), row in sorted(rows.items(), key=lambda item: -item[1].measured):
        found.append({"kind": kind, "what": what, "times": row.times, "predicted_us": round(row.predicted, 1),
                      "measured_us": round(row.measured, 1), "predicted_bytes": int(row.bytes),
                      "measured_of_predicted": round(row.measured / row.predicted, 3) if row.predicted else None})
    return found + helper_lines(rows)


def helper_lines(rows):
    """What libraries' separate kernels took: reductions, gradients of biases, changes of layout."""
    helpers = collections.defaultdict(lambda: [0, 0.0])
    for row in rows.values():
        for name, (times, microseconds) in row.helpers.items():
            helpers[name][0] += times
            helpers[name][1] += microseconds
    return [{"kind": "helper", "what": name, "times": times, "measured_us": round(microseconds, 1)}
            for name, (times, microseconds) in sorted(helpers.items(), key=lambda item: -item[1][1])]


def device_of(name):
    """The known device of a GPU's name; None where there is none like it."""
    return next((known for known in devices.names() if known in name.lower()), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile")
    parser.add_argument("times")
    parser.add_argument("--device", default="h100", choices=devices.names())
    parser.add_argument("--rows", type=int, default=30)
    arguments = parser.parse_args()
    step = predicted_step(read_profile(arguments.profile), devices.load(arguments.device))
    rows, words = compare(step, read_times(arguments.times))
    for line in lines_of(rows)[:arguments.rows]:
        print(json.dumps(line))
    for word in sorted(set(words)):
        print(f"kernel_comparison.py: {word}", file=sys.stderr)


if __name__ == "__main__":
    main()
