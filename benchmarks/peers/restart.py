#!/usr/bin/env python3
"""From kill -9 of a rank to the end of the next step, under lockstep_run.

    restart.py [--bin build/bin] [--kills N]

Two ranks of train_gpt with 8.4 million parameters and AdamW, whose checkpoints have 100 MB, are
killed in turn, each time behind a checkpoint and steps that no start had reached. Prints one JSON
line: minimum, median and maximum of the seconds from the signal to the first line that those who are
started again write into the log of steps.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SAVE_EVERY = 10
LONGEST = 120  # seconds


def steps_of(log, begin=0):
    """The steps whose lines are in the log from a byte on."""
    try:
        with open(log, "rb") as file:
            file.seek(begin)
            return [json.loads(line)["step"] for line in file if line.endswith(b"\n")]
    except FileNotFoundError:
        return []


def newest_step(checkpoints):
    names = [path.name for path in checkpoints.glob("step-*") if path.name[5:].isdigit()]
    return max((int(name[5:]) for name in names), default=0)


def wait_for(condition, run, what):
    deadline = time.monotonic() + LONGEST
    while not (value := condition()):
        if run.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not come; lockstep_run: {run.poll()}")
        time.sleep(0.005)
    return value


def process_of_rank(rank, folder):
    """The process that trains as a rank of the run whose checkpoints are there."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().split(b"\0")
            variables = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if (command[0].endswith(b"train_gpt") and str(folder).encode() in command
                and f"RANK={rank}".encode() in variables):
            return int(path.name)
    return None


def seconds_to_next_step(rank, run, checkpoints, log):
    saved = newest_step(checkpoints)
    wait_for(lambda: newest_step(checkpoints) > saved, run, "a checkpoint")
    lines = len(steps_of(log))
    wait_for(lambda: len(steps_of(log)) > lines + 1, run, "a step")
    process = process_of_rank(rank, checkpoints)
    last, size = steps_of(log)[-1], log.stat().st_size
    start = time.monotonic()
    os.kill(process, signal.SIGKILL)
    # Those who are started again make steps that the log has.
    wait_for(lambda: any(step <= last for step in steps_of(log, size)), run, "a step again")
    return time.monotonic() - start


def measure(binaries, kills, where="."):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="restart-", dir=where))
    checkpoints, log = folder / "checkpoints", folder / "log"
    command = [os.path.join(binaries, "lockstep_run"), "-n", "2", "--max-restarts", str(kills + 1),
               "--", os.path.join(binaries, "train_gpt"), "--layers", "4", "--heads", "8",
               "--channels", "416", "--context", "32", "--global-batch", "4", "--steps", "1000000",
               "--checkpoint-dir", str(checkpoints), "--save-every", str(SAVE_EVERY), "--log",
               str(log)]
    with open(folder / "output", "w", encoding="utf-8") as output:
        run = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        times = [seconds_to_next_step(kill % 2, run, checkpoints, log) for kill in range(kills)]
        state = sum(path.stat().st_size for path in
                    (checkpoints / f"step-{newest_step(checkpoints)}").glob("*"))
    except RuntimeError as error:
        raise RuntimeError(f"{error}\n{(folder / 'output').read_text()[-2000:]}") from None
    finally:
        run.send_signal(signal.SIGINT)
        run.wait(30)
        shutil.rmtree(folder)
    return {"benchmark": "restart", "ranks": 2, "kills": kills, "state_mb": state / 1e6,
            "seconds_min": min(times), "seconds_median": statistics.median(times),
            "seconds_max": max(times)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--kills", type=int, default=7)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not before the ranks are gone
    print(json.dumps(measure(options.bin, options.kills)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
