#!/usr/bin/env python3
"""Training steps, data loaders and single ops of lockstep and PyTorch, in turns, on the same data.

    compare.py --bin build/bin [--python PYTHON] [--threads N ...] [--mode eager] [--steps N]
               [--llmc DIR] CASE...

PYTHON is an interpreter that has torch and safetensors. DIR is a checkout of llm.c, whose
train_gpt2.c then takes turns with both in the case gpt2_f32. Prints one JSON line a case: minimum and
median time of both, the ratio of the medians (above 1: lockstep is faster), and the largest
relative difference of the losses or of the batches' checksums, without which no speed means
anything. The case ops has a line for each single op. Loaders get the largest number of threads, and each library its best number of workers.
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
from compare_ops import compare_ops
from stepper import Stepper

TRAIN_CASES = ("gpt_f32", "gpt_bf16", "gpt_amp", "gpt2_f32", "gpt2_amp", "tiny_f32",
               "resnet18_f32", "resnet18_bf16", "resnet50_f32", "resnet50_bf16")
LOADER_CASES = ("tokens", "images")
OP_CASES = ("ops",)


def start_programs(case, threads, options, state):
    """By name, lockstep's first, for it writes the weights that the others read."""
    here = pathlib.Path(__file__).parent
    commands = {
        "lockstep": [os.path.join(options.bin, "benchmark_train_step"), "--serve", case, state,
                     "--threads", str(threads)],
        "torch": [options.python, str(here / "torch_train_step.py"), case, state, str(threads),
                  options.mode]}
    if options.llmc and case == "gpt2_f32":
        commands["llmc"] = [options.python, str(here / "llmc_train_step.py"), state, options.llmc]
    return {name: Stepper(command, threads) for name, command in commands.items()}


def compare_train_step(case, threads, options):
    with tempfile.TemporaryDirectory() as folder:
        programs = start_programs(case, threads, options, os.path.join(folder, "state.safetensors"))
        rounds = []
        started = time.monotonic()
        while len(rounds) < options.steps and time.monotonic() - started < options.seconds:
            rounds.append({name: program.step() for name, program in programs.items()})
        for program in programs.values():
            program.stop()
    warm = rounds[len(rounds) // 5:]
    line = {"benchmark": "train_step against PyTorch " + options.mode, "case": case,
            "threads": threads, "steps": len(warm)}
    medians = {}
    for name in programs:
        milliseconds = [each[name]["seconds"] * 1e3 for each in warm]
        medians[name] = statistics.median(milliseconds)
        line |= {f"{name}_ms_min": min(milliseconds), f"{name}_ms_median": medians[name]}
    line["ratio"] = medians["torch"] / medians["lockstep"]
    if "llmc" in medians:
        line["ratio_to_llmc"] = medians["llmc"] / medians["lockstep"]
    line["largest_loss_difference"] = max(
        abs(each["lockstep"]["loss"] - each[name]["loss"]) / abs(each[name]["loss"])
        for each in rounds for name in programs)
    return line


def compare(case, options):
    """The result lines of one case."""
    if case in LOADER_CASES:
        yield from compare_loader(case, options)
        return
    for threads in options.threads:
        if case in OP_CASES:
            yield from compare_ops(threads, options)
            continue
        yield compare_train_step(case, threads, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--mode", choices=["eager", "compiled"], default="eager")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=60, help="at most this long a case")
    parser.add_argument("--llmc", metavar="DIR", help="a checkout of llm.c")
    parser.add_argument("cases", nargs="*", default=[*TRAIN_CASES, *LOADER_CASES, *OP_CASES])
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
