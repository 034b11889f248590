#!/usr/bin/env python3
"""Rows for simgpu/profile/measured.json: what a step's kernels and calls of libraries took on a GPU, with their shapes and counts.

    measured_rows.py STEP=PROFILE,TIMES... [--device h100] --source WORDS -o simgpu/profile/measured.json

PROFILE and TIMES as for kernel_comparison.py; STEP is what the step is called in tables. Launches of one kernel, grid
and size, and calls of one shape, are one row, with the mean of their times and the counts of the first. Registers are
those that the GPU reports.
"""

import argparse
import json
import re

import kernel_comparison
import library_kernels

# What of a record decides how long it takes.
KEPT = ("kind", "op", "grid", "block", "shared", "static_shared", "read_bytes", "write_bytes", "read_distinct", "write_distinct",
        "requests", "sectors", "ideal_sectors", "shared_requests", "shared_wavefronts", "barriers", "atomics",
        "m", "n", "k", "batch", "a", "b", "c", "d", "compute", "epilogue", "widths", "leading", "heads", "kv_heads", "queries",
        "keys", "width", "causal", "backward", "deterministic", "dtype", "pass", "shape", "flops")
# Counts of sampled blocks, which differ a little between calls that are alike.
COUNTED = ("read_bytes", "write_bytes", "read_distinct", "write_distinct", "requests", "sectors", "ideal_sectors",
           "shared_requests", "shared_wavefronts", "barriers", "atomics")
SAMPLING = 1.03
MOST_LETTERS = 110


def name_of(record):
    """A kernel's name with its template arguments, without namespaces; a call's shape."""
    if record["kind"] == "convolution":
        sides = ("x".join(map(str, record["shape"][part])) for part in ("image", "weight"))
        return f"{kernel_comparison.label(record)} {' by '.join(sides)} to {record['shape']['result'][2]}"
    if record["kind"] != "kernel":
        return kernel_comparison.label(record)
    return kernel_comparison.full_name(record["name"])[:MOST_LETTERS]


def kernel_names(kernels):
    """The kernels of a call of a library, shortened."""
    return [library_kernels.helper_name(entry["name"]) if library_kernels.is_helper(entry["name"])
            else re.sub(r"^void |[<(].*", "", entry["name"])[:MOST_LETTERS] for entry in kernels]


def rows_of(step, profile, times, device):
    """The rows of one step."""
    made = kernel_comparison.predicted_step(kernel_comparison.read_profile(profile), device)
    compared, words = kernel_comparison.compare(made, kernel_comparison.read_times(times))
    if words:
        raise SystemExit(f"measured_rows.py: {step}: {words[0]}")
    found = {}
    for row in compared.values():
        for record, microseconds, kernels in row.calls:
            kept = {"name": name_of(record), **{key: record[key] for key in KEPT if key in record}}
            key = json.dumps([value for name, value in kept.items() if name not in COUNTED])
            found.setdefault(key, []).append((microseconds, kernels, kept))
    return [line(step, calls) for group in found.values() for calls in of_one_size(group)]


def of_one_size(calls):
    """The calls in lists that touch as many bytes, but for what sampling makes of it."""
    lists = []
    for call in sorted(calls, key=lambda call: bytes_of(call[2])):
        if not lists or bytes_of(call[2]) > SAMPLING * bytes_of(lists[-1][0][2]):
            lists.append([])
        lists[-1].append(call)
    return lists


def bytes_of(record):
    return record.get("read_distinct", 0) + record.get("write_distinct", 0)


def line(step, calls):
    _, kernels, record = calls[0]
    known = {"registers": kernels[0]["registers"]} if record["kind"] == "kernel" else {"kernels": kernel_names(kernels)}
    helpers = [entry["us"] for _, ran, _ in calls for entry in ran if library_kernels.is_helper(entry["name"])]
    if record["kind"] != "kernel" and helpers:
        known["helpers_us"] = round(sum(helpers) / len(calls), 2)
    return {"step": step, "times": len(calls), "us": round(sum(us for us, _, _ in calls) / len(calls), 2), **known, **record}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="+", metavar="STEP=PROFILE,TIMES")
    parser.add_argument("--device", default="h100", choices=kernel_comparison.devices.names())
    parser.add_argument("--source", required=True)
    parser.add_argument("-o", "--output", required=True)
    arguments = parser.parse_args()
    rows = []
    for words in arguments.steps:
        step, files = words.split("=", 1)
        rows += rows_of(step, *files.split(","), kernel_comparison.devices.load(arguments.device))
    rows.sort(key=lambda row: (row["kind"], row["name"], row["step"], -row["us"]))
    with open(arguments.output, "w", encoding="utf-8") as file:
        head = {"source": arguments.source, "device": arguments.device}
        file.write(f"{json.dumps(head)[:-1]}, \"rows\": [\n")
        file.write(",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]}\n")


if __name__ == "__main__":
    main()
