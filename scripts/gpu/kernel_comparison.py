#!/usr/bin/env python3
"""Predicted beside measured times of a step's kernels and products.

    kernel_comparison.py PROFILE TIMES [--device h100] [--rows 30]

PROFILE is what the simulated GPU recorded of a step, TIMES what kernel_times (benchmarks/cupti) recorded of the same program
on a GPU. Kernels of the library's own are joined by name and order; what stands between two of them, in cuBLASLt's and
cuDNN's kernels, belongs to the products, attentions and convolutions that the profile has there.
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
import measures  # noqa: E402
import records  # noqa: E402
import timeline  # noqa: E402
import window  # noqa: E402
from model import Model  # noqa: E402

LIBRARY_CALLS = ("product", "attention", "convolution", "cudnn")


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
    name = name.replace("(anonymous namespace)::", "")
    head = re.split(r"[<(]", re.sub(r"^(?:void|static|auto) ", "", name), maxsplit=1)[0].strip()
    return head.split("::")[-1].split(" ")[-1]


def is_own(entry):
    return entry["kind"] == "kernel" and "lockstep::" in entry["name"]


def predicted_step(profile, device):
    """The work of the profile's last whole step, in the order of its launches."""
    model = Model(device, profile.ranks)
    made = timeline.of([profile], model, timeline.Options(host_gap=2.0))
    return measures.step_of(made, profile.rank, window.last_step(profile))


def last_match(wanted, names):
    """Where a sequence begins in a longer one for the last time; None where it is not in it."""
    for begin in range(len(names) - len(wanted), -1, -1):
        if names[begin:begin + len(wanted)] == wanted:
            return begin
    return None


class Row:
    """All work of one label."""

    def __init__(self):
        self.times, self.predicted, self.measured, self.bytes = 0, 0.0, 0.0, 0.0


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
    names = [base_name(entry["name"]) for _, entry in found]
    wanted = [base_name(piece.record["name"]) for _, piece in expected]
    rows, words = collections.defaultdict(Row), []
    begin = last_match(wanted, names)
    if begin is None:
        words.append(f"the order of {len(wanted)} kernels of a step is not in the {len(names)} that ran: joined by name alone")
        join_by_name(rows, step, found)
        return rows, words
    chosen = found[begin:begin + len(wanted)]
    for (before, piece), (others, entry) in zip(expected, chosen):
        put(rows, piece, entry["us"])
        join_calls(rows, before, others, words)
    after = found[begin + len(wanted)][0] if begin + len(wanted) < len(found) else rest_found
    join_calls(rows, rest, after[:len(rest)], words)
    return rows, words


def put(rows, piece, measured):
    row = rows[piece.record["kind"], measures.label(piece.record)]
    row.times += 1
    row.predicted += piece.duration
    row.measured += measured
    row.bytes += piece.prediction.bytes


def join_calls(rows, pieces, entries, words):
    """Shares out the kernels of libraries that ran between two of our own to the calls that were made there."""
    calls = [piece for piece in pieces if piece.record["kind"] in LIBRARY_CALLS]
    ran = [entry for entry in entries if entry["kind"] == "kernel"]
    if not calls:
        return
    if len(calls) == 1:
        put(rows, calls[0], sum(entry["us"] for entry in ran))
    elif len(calls) == len(ran):
        for piece, entry in zip(calls, ran):
            put(rows, piece, entry["us"])
    else:
        whole = sum(piece.duration for piece in calls)
        for piece in calls:
            put(rows, piece, sum(entry["us"] for entry in ran) * piece.duration / whole)
        words.append(f"{len(ran)} kernels for {len(calls)} calls in a row: shared out as predicted")


def join_by_name(rows, step, found):
    """The mean time of each kernel that ran, for each launch of its name."""
    ran = collections.defaultdict(list)
    for _, entry in found:
        ran[base_name(entry["name"])].append(entry["us"])
    for piece in step.work:
        times = ran.get(base_name(piece.record["name"])) if piece.record["kind"] == "kernel" else None
        if times:
            put(rows, piece, sum(times) / len(times))


def lines_of(rows):
    """A dictionary a row, what took longest first."""
    found = []
    for (kind, label), row in sorted(rows.items(), key=lambda item: -item[1].measured):
        found.append({"kind": kind, "what": label, "times": row.times, "predicted_us": round(row.predicted, 1),
                      "measured_us": round(row.measured, 1), "predicted_bytes": int(row.bytes),
                      "measured_of_predicted": round(row.measured / row.predicted, 3) if row.predicted else None})
    return found


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
