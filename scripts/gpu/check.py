#!/usr/bin/env python3
"""The stages of scripts/gpu_check.sh, the most valuable first, each with a limit of its own.

    check.py --root FOLDER [--programs FOLDER] [--out FOLDER] [--minutes 9] [--stages LIST] [--quick]

ROOT is a bundle of scripts/gpu_bundle.sh, or a source tree, whose built programs are in PROGRAMS. What is found is in
OUT/gpu_check.jsonl at once, a line each; what programs wrote in OUT/gpu_check.log; the whole in words in OUT/summary.txt.
Exit code: 0, 1 if something failed, 2 if there is no GPU.
"""

import argparse
import os
import pathlib
import re
import shutil
import sys
import time

import benchmarks
import gpu_tests
import jobs
import machine
import place as places
import program
import results as outputs
import sanitizer
import saves
import step_kernels
import steps
import summary

# (name, seconds at most, what it does)
STAGES = (
    ("ceilings", 30, machine.ceilings),
    ("describe", 15, machine.describe),
    ("tests", 90, gpu_tests.run_suites),
    ("parity", 25, gpu_tests.parity),
    ("twins", 30, steps.twins),
    ("steps", 70, steps.ours),
    ("kernels", 50, step_kernels.compare),
    ("launches", 20, step_kernels.launches),
    ("torch", 80, steps.torch),
    ("choices", 45, steps.choices),
    ("ranks", 90, gpu_tests.two_ranks),
    ("jobs", 60, jobs.run),
    ("saves", 45, saves.run),
    ("sanitizer", 60, sanitizer.run),
    ("dram", 50, step_kernels.dram),
    ("benchmarks", 100, benchmarks.run),
    ("llm.c", 30, steps.llmc),
    ("torch.compile", 90, steps.torch_compiled),
)
MACHINE_SECONDS = 60
# Kept for what comes after the last stage.
RESERVE_SECONDS = 8


class Check:
    """What the stages share."""

    def __init__(self, place, results, minutes, quick):
        self.place, self.results, self.quick = place, results, quick
        self.end = time.monotonic() + minutes * 60 - RESERVE_SECONDS
        self.stage_end, self.gpus, self.memory, self.failures = self.end, [], 0, []

    def left(self):
        """Seconds that the stage may still take."""
        return max(0.0, min(self.stage_end, self.end) - time.monotonic())

    def run(self, command, limit, environment=None, **options):
        """The Outcome of a program, by default in the environment of our own ones; options as program.run has them."""
        environment = self.place.environment if environment is None else environment
        return program.run(command, limit, environment, self.results, **options)

    def skip(self, stage, why):
        self.results.add(stage, skipped=why)
        self.results.say(f"{stage}: left out: {why}")

    def note_failure(self, stage, what):
        self.failures.append(f"{stage}: {what}")
        self.results.say(f"{stage}: FAILED: {what}")

    def fail(self, stage, what, outcome=None):
        """Something that should have worked did not. What the clock cut off is no failure."""
        self.results.add(stage, failed=what, said=outcome.lines[-5:] if outcome else [])
        if not (outcome and (outcome.is_late or outcome.is_silent)):
            self.note_failure(stage, what)

    def find_tool(self, name):
        """The path of one of NVIDIA's tools; None where it is not."""
        folders = (f"usr/local/cuda*/bin/{name}", f"opt/nvidia/nsight-compute/*/{name}",
                   f"usr/local/cuda*/compute-sanitizer/{name}")
        found = (str(path) for folder in folders for path in sorted(pathlib.Path("/").glob(folder)))
        return shutil.which(name) or next(found, None)

    def stage(self, name, seconds, act):
        """One stage; an error in it is told, and the next one goes on."""
        began = time.monotonic()
        self.stage_end = began + seconds
        if self.left() < 2:
            self.results.add(name, skipped="no time is left")
            return
        self.results.say(f"stage {name}, at most {self.left():.0f} s")
        try:
            act(self)
        except Exception as error:  # pylint: disable=broad-except
            self.results.add(name, failed=f"{type(error).__name__}: {error}")
            self.note_failure(name, f"{type(error).__name__}: {error}")
        self.results.add("stage", name=name, seconds=round(time.monotonic() - began, 1))


def memory_of(gpu):
    """Bytes of a GPU's memory that lockstep_info calls free."""
    found = re.search(r"([\d.]+) GiB free", gpu)
    return float(found[1]) * (1 << 30) if found else 0


class Parser(argparse.ArgumentParser):
    """Ends with 3 where a call is wrong: 2 says that there is no GPU."""

    def error(self, message):
        self.print_usage(sys.stderr)
        self.exit(3, f"gpu_check: {message}\n")


def parse():
    parser = Parser(prog="gpu_check.sh", description=__doc__.splitlines()[0])
    parser.add_argument("--root", required=True)
    parser.add_argument("--programs", help="default: bin in ROOT")
    parser.add_argument("--out", default=os.environ.get("OUT"), help="default: $OUT, else benchmarks/results/gpu-DATE")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--stages", help=f"some of {','.join(name for name, _, _ in STAGES)}")
    parser.add_argument("--quick", action="store_true", help="sizes and tests for the simulated GPU")
    arguments = parser.parse_args()
    if not arguments.minutes > 0:
        parser.error(f"--minutes takes a positive number, not {arguments.minutes:g}")
    names = [name for name, _, _ in STAGES]
    arguments.stages = arguments.stages.split(",") if arguments.stages else names
    for name in arguments.stages:
        if name not in names:
            parser.error(f"no stage '{name}'; there are {', '.join(names)}")
    arguments.out = arguments.out or f"benchmarks/results/gpu-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    return arguments


def main():
    arguments = parse()
    results = outputs.Results(arguments.out)
    check = Check(places.Place(arguments.root, arguments.programs), results, arguments.minutes, arguments.quick)
    check.stage("machine", MACHINE_SECONDS, machine.machine)
    check.stage_end = check.end
    check.gpus = machine.gpus(check)
    if check.gpus:
        check.memory = memory_of(check.gpus[0])
        results.say(f"{len(check.gpus)} x {check.gpus[0]}")
        for name, seconds, act in STAGES:
            if name in arguments.stages:
                check.stage(name, seconds, act)
    else:
        results.say("no CUDA device: nothing was checked on one")
    results.finish(summary.text(check))
    ran = any("stage" in entry and entry.get("name") != "machine" for entry in results.of("stage"))
    return 2 if not check.gpus else 1 if check.failures or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
