#!/usr/bin/env python3
"""Data parallelism of lockstep beside PyTorch's, Gloo's and Open MPI's, in turns, by one command.

    data_parallel.py --bin build/bin [--python PYTHON] [--quick] [--links LINKS] [--ranks-per-host N] [PART...]
    data_parallel.py --tables FILE...        tables of lines that were printed before

Two ranks with a core each, on one host and on two whose link carries 1 Gbit/s or 100 Mbit/s (--links
host,1gbit,100mbit: namespaces of this machine, by tests/support/hosts.sh). With --ranks-per-host 2 each of the two
hosts has two ranks, on its one core, and the part step sets `hier` and `tcp` beside Gloo; only that one, and only
between hosts. PARTs, all of them unless
some are named: all_reduce (lockstep's backends, Gloo, MPI_Allreduce of Open MPI, and MPICH's where that is
installed beside it, f32, by size), step (DDP
against DDP in f32 and under autocast to bf16, each also against its own step on one rank: efficiency,
what the machine lets two ranks reach, and the share of communication that is hidden), shard (ZeRO's
stages, ZeroRedundancyOptimizer and FSDP: time and memory; not at 100 Mbit/s), plan (measured buckets
against those by sizes), hooks (compression).

PYTHON is an interpreter that has torch and safetensors. A case takes about --seconds and the start of
its programs, with --quick some steps of each, of which figures are rough. Prints a JSON line a case,
and markdown tables in the end, with what was reached of each target. Losses are compared step by step:
without that no speed means anything.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

from data_parallel_cases import run_part
from data_parallel_tables import COLUMNS, print_tables
from ranks import HERE

HOSTS_SCRIPT = HERE.parent.parent / "tests" / "support" / "hosts.sh"
LINKS = ("host", "1gbit", "100mbit")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--links", type=lambda names: names.split(","), default=list(LINKS),
                        help="some of host, and rates as tc has them: 1gbit, 100mbit")
    parser.add_argument("--quick", action="store_true", help="3 steps or rounds, 7 where plans or hooks start late")
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=20, help="of all-reduces at each size")
    parser.add_argument("--seconds", type=float, default=20, help="about so long a case")
    parser.add_argument("--cases", type=lambda names: names.split(","),
                        default=["gpt_f32", "gpt_amp", "gpt_bf16"], help="of the part step, as a,b")
    parser.add_argument("--tables", nargs="+", help="files of lines to print as tables")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(COLUMNS))
    options = parser.parse_args()
    for name, given, known in (("link", options.links, LINKS), ("part", options.parts, COLUMNS)):
        unknown = [each for each in given if each not in (*known, "all")]
        if unknown:
            parser.error(f"no {name} {unknown[0]!r}; there are {', '.join(known)}")
    if not options.parts or "all" in options.parts:
        options.parts = list(COLUMNS) if options.ranks_per_host == 1 else ["step"]
    if options.ranks_per_host < 1:
        parser.error(f"--ranks-per-host must be at least 1, got {options.ranks_per_host}")
    if options.ranks_per_host > 1 and (options.parts != ["step"] or "host" in options.links):
        parser.error("--ranks-per-host goes with the part step, and with links between hosts: "
                     "give --links 1gbit,100mbit step")
    if options.quick:
        options.steps, options.rounds, options.seconds = 3, 3, 5
    return options


def run_here(options):
    """Prints the lines of the parts over the one link."""
    options.link = options.links[0]
    for part in options.parts:
        if part == "shard" and options.link == "100mbit":
            continue
        for line in run_part(part, options):
            print(json.dumps({"benchmark": "data_parallel", "part": part, "link": options.link,
                              "ranks_per_host": options.ranks_per_host, **line, "load": os.getloadavg()[0]}), flush=True)


def run_on(link, options):
    """The same for one of the links, with hosts where it needs some. @return the lines."""
    command = [sys.executable, __file__, "--bin", options.bin, "--python", options.python, "--links",
               link, "--steps", str(options.steps), "--rounds", str(options.rounds), "--seconds",
               str(options.seconds), "--cases", ",".join(options.cases), "--ranks-per-host",
               str(options.ranks_per_host), *options.parts]
    if link != "host":
        command = [str(HOSTS_SCRIPT), "2", "--rate", link, *command]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "DATA_PARALLEL_LINK": link}) as process:
        for text in process.stdout:
            print(text, end="", flush=True)
            lines.append(json.loads(text))
    if process.returncode:
        what = "this machine has no hosts" if process.returncode == 77 else "failed"
        print(f"{link}: {what} (exit code {process.returncode})", file=sys.stderr, flush=True)
    return lines, process.returncode


def main():
    options = arguments()
    if options.tables:
        print_tables([json.loads(text) for name in options.tables
                      for text in pathlib.Path(name).read_text(encoding="utf-8").splitlines()
                      if text.startswith("{")])
        return 0
    if os.environ.get("DATA_PARALLEL_LINK"):
        run_here(options)
        return 0
    if subprocess.run([options.python, "-c", "import torch, safetensors"],
                      stderr=subprocess.DEVNULL, check=False).returncode:
        print(f"{options.python} has no torch and safetensors; name one that has with --python")
        return 77
    started = time.monotonic()
    results = [run_on(link, options) for link in options.links]
    print_tables([line for lines, _ in results for line in lines])
    print(f"\n{time.monotonic() - started:.0f} s")
    return max(code for _, code in results)


if __name__ == "__main__":
    sys.exit(main())
