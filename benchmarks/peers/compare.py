#!/usr/bin/env python3
"""Training steps and data loaders of lockstep and PyTorch, step by step in turn, on the same data.

    compare.py --bin build/bin [--python PYTHON] [--threads N ...] [--mode eager] [--steps N] CASE...

PYTHON is an interpreter that has torch and safetensors. Prints one JSON line a case: minimum and
median time of both, the ratio of the medians (above 1: lockstep is faster), and the largest
relative difference of the losses or of the batches' checksums, without which no speed means
anything. Loaders get the largest number of threads, and each library its best number of workers.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from compare_loader import compare_loader
from stepper import Stepper

TRAIN_CASES = ("gpt_f32", "gpt_bf16", "gpt_amp", "tiny_f32", "resnet18_f32", "resnet18_bf16",
               "resnet50_f32", "resnet50_bf16")
LOADER_CASES = ("tokens", "images")


def compare_train_step(case, threads, options):
    peer_script = pathlib.Path(__file__).with_name("torch_train_step.py")
    with tempfile.TemporaryDirectory() as folder:
        state = os.path.join(folder, "state.safetensors")
        ours = Stepper([os.path.join(options.bin, "benchmark_train_step"), "--serve", case, state,
                        "--threads", str(threads)], threads)
        peer = Stepper([options.python, str(peer_script), case, state, str(threads), options.mode],
                       threads)
        pairs = []
        started = time.monotonic()
        while len(pairs) < options.steps and time.monotonic() - started < options.seconds:
            pairs.append((ours.step(), peer.step()))
        ours.stop()
        peer.stop()
    warm = pairs[len(pairs) // 5:]
    mine, theirs = ([pair[i]["seconds"] for pair in warm] for i in (0, 1))
    losses = max(abs(a["loss"] - b["loss"]) / abs(b["loss"]) for a, b in pairs)
    return {"benchmark": "train_step against PyTorch " + options.mode, "case": case,
            "threads": threads, "steps": len(warm),
            "lockstep_ms_min": min(mine) * 1e3, "lockstep_ms_median": statistics.median(mine) * 1e3,
            "torch_ms_min": min(theirs) * 1e3, "torch_ms_median": statistics.median(theirs) * 1e3,
            "ratio": statistics.median(theirs) / statistics.median(mine),
            "largest_loss_difference": losses}


def compare(case, options):
    """The result lines of one case."""
    if case in LOADER_CASES:
        yield from compare_loader(case, options)
        return
    for threads in options.threads:
        yield compare_train_step(case, threads, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--mode", choices=["eager", "compiled"], default="eager")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=60, help="at most this long a case")
    parser.add_argument("cases", nargs="*", default=[*TRAIN_CASES, *LOADER_CASES])
    options = parser.parse_args()
    if subprocess.run([options.python, "-c", "import torch, safetensors"],
                      stderr=subprocess.DEVNULL, check=False).returncode:
        print(f"{options.python} has no torch and safetensors; name one that has with --python")
        return 77
    for case in options.cases:
        for line in compare(case, options):
            print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
