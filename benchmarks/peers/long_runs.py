#!/usr/bin/env python3
"""What a long run's parts cost, in one table: checkpoints beside dd with O_DIRECT and PyTorch's
DistributedCheckpoint, a restart behind kill -9, and the order of a billion samples.

    long_runs.py [saves] [restart] [order] [--bin build/bin] [--python PYTHON] [--folder DIR]
                 [--ranks 1 2] [--rounds 3] [--training-rounds 1] [--layers 30] [--width 2032]
                 [--kills 7]

PYTHON is an interpreter that has torch. DIR, 12 GB, lies on the disk that is measured. 30 layers of
width 2032 have 124 million parameters: with AdamW 1.5 GB of state. dd, lockstep and PyTorch take
turns within a round; 1 rank has all cores, 2 ranks have a core each. Prints one JSON line for each
number of ranks and each other part, and then the table: medians, and the least and the most in
brackets. What is `asked` is beside each row.
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

import restart
from ranks import HERE, Ranks

BLOCK = 8 << 20


def remove_files(files):
    for file in files:
        pathlib.Path(file).unlink(missing_ok=True)


class Disk:
    """dd of each rank's share, from as many processes at once."""

    def __init__(self, folder, size, state_bytes):
        self.files = [os.path.join(folder, f"dd-{rank}") for rank in range(size)]
        self.count = max(1, round(state_bytes / size / BLOCK))
        self.gigabytes = self.count * BLOCK * size / 1e9

    def run(self, arguments):
        """GB/s from the first one's start to the last one's end."""
        script = " & ".join(f"dd bs=8M count={self.count} {arguments.format(file)} 2>/dev/null"
                            for file in self.files)
        # The shell's own start counts with neither.
        script = f"s=$(date +%s%N); {script} & wait; echo $(($(date +%s%N) - s))"
        nanoseconds = subprocess.run(["bash", "-c", script], check=True, capture_output=True,
                                     text=True).stdout
        if any(os.path.getsize(file) != self.count * BLOCK for file in self.files):
            raise RuntimeError("dd did not write all; is the disk full?")
        return self.gigabytes / (int(nanoseconds) * 1e-9)

    def write(self):
        """Into new files, as a save does."""
        remove_files(self.files)
        return self.run("if=/dev/zero of={} oflag=direct conv=fsync")

    def read(self):
        return self.run("if={} of=/dev/null iflag=direct")


def take_turns(disk, ours, peer, peer_folder, gigabytes, options):
    """One round's figures in each row. All write new files: what a disk takes to give up those of the
    round before counts with none."""
    rows = []
    for _ in range(options.rounds):
        row = {"dd_write": disk.write(), "dd_read": disk.read(), "copy": ours.ask("copy")[0]}
        row |= {"save": ours.ask("save")[0], "load": ours.ask("load")[0]}
        remove_files(peer_folder.iterdir())
        row |= {"peer_save": peer.ask("save")[0], "peer_load": peer.ask("load")[0]}
        for name, disk_rate in (("save", "dd_write"), ("load", "dd_read")):
            for each in (row[name], row["peer_" + name]):
                each["gb_s"] = gigabytes / each["seconds"]
                each["of_dd"] = each["gb_s"] / row[disk_rate]
        rows.append(row)
    return rows


def measure_saves(size, options):
    state_bytes = options.layers * options.width * (options.width + 1) * 12
    pathlib.Path(options.folder or tempfile.gettempdir()).mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="long-runs-", dir=options.folder)
    sizes = [str(options.layers), str(options.width), str(options.batch)]
    ours = peer = None
    try:
        ours = Ranks([os.path.join(options.bin, "benchmark_checkpoint"), "--serve", "--folder",
                      os.path.join(folder, "ours"), "--layers", sizes[0], "--width", sizes[1],
                      "--batch", sizes[2]], size)
        ours.wait_until_ready()
        peer = Ranks([options.python, str(HERE / "torch_checkpoint.py"),
                      os.path.join(folder, "peer"), *sizes], size)
        peer.wait_until_ready()
        disk = Disk(folder, size, state_bytes)
        first, peer_first = ([ranks.ask("first")[0], ranks.ask("load")[0]]
                             for ranks in (ours, peer))
        rounds = take_turns(disk, ours, peer, pathlib.Path(folder, "peer", "saved"),
                            state_bytes / 1e9, options)
        stalls = [ours.ask("stalls")[0] for _ in range(options.training_rounds)]
        checksums = ours.ask("checksums")[0]
        beside = [{"ours": ours.ask("beside")[0], "peer": peer.ask("beside")[0]}
                  for _ in range(options.training_rounds)]
    finally:
        for ranks in (ours, peer):
            if ranks:
                ranks.stop()
        shutil.rmtree(folder)
    return {"benchmark": "checkpoint beside dd and PyTorch", "ranks": size,
            "state_mb": state_bytes / 1e6, "first": first, "peer_first": peer_first,
            "rounds": rounds, "checksums": checksums, "stalls": stalls,
            "beside": beside}


def several(values, digits=2):
    values = [value for value in values if value is not None]
    if not values:
        return ""
    text = f"{statistics.median(values):.{digits}f}"
    return text if len(values) == 1 else (
        text + f" ({min(values):.{digits}f} to {max(values):.{digits}f})")


def unverified(line):
    """Seconds that a load from the page cache would take without checksums, at the least."""
    added = line["checksums"]["seconds"] - line["checksums"]["without"]
    return [each["load"]["cached"] - added for each in line["rounds"]]


def rows_of(line):
    """Each row: its name, what is asked of it, and the cells of lockstep and PyTorch."""
    rounds, size = line["rounds"], line["ranks"]
    ours = [each["ours"] for each in line["beside"]]
    peer = [each["peer"] for each in line["beside"]]
    copy = statistics.median(each["copy"]["seconds"] for each in rounds)

    def stalls(key):
        return several([each[key] / copy for each in line["stalls"]])

    share = line["state_mb"] / size

    def of(values, *keys, scale=1, digits=2):
        for key in keys:
            values = [value.get(key) for value in values]
        return several([value * scale for value in values if value is not None], digits)

    def rates(name):
        return [of(rounds, prefix + name, "gb_s") for prefix in ("", "peer_")]

    def shares(name):
        return [of(rounds, prefix + name, "of_dd") for prefix in ("", "peer_")]

    cached = [each["load"]["cached"] / without
              for each, without in zip(rounds, unverified(line))]
    def each_of(key, **format_of):
        return [of(times, key, **format_of) for times in (ours, peer)]

    def first(index):
        return [of(line[name][index:index + 1], "seconds") for name in ("first", "peer_first")]

    def memory(index, beyond):
        return [several([line[name][index]["memory_mb"] - beyond], 0)
                for name in ("first", "peer_first")]

    return [
        ("dd writes, GB/s", "", of(rounds, "dd_write"), ""),
        ("until it is on disk, GB/s", "", *rates("save")),
        ("the same, of dd's", ">= 0.90", *shares("save")),
        ("the first save, s", "", *first(0)),
        ("later ones, s", "", of(rounds, "save", "seconds"), of(rounds, "peer_save", "seconds")),
        ("dd reads, GB/s", "", of(rounds, "dd_read"), ""),
        ("load from disk, verified (PyTorch verifies nothing), GB/s", "", *rates("load")),
        ("the same, of dd's", ">= 0.90", *shares("load")),
        ("the first load, s", "", *first(1)),
        ("later ones, s", "", of(rounds, "load", "seconds"), of(rounds, "peer_load", "seconds")),
        ("load from the page cache, s", "", of(rounds, "load", "cached"),
         of(rounds, "peer_load", "cached")),
        ("the same, of one without checksums", "<= 1.10", several(cached), ""),
        ("copy of a rank's share, ms", "", several([copy * 1e3], 0), ""),
        ("call of a save, ms", "", *each_of("call", scale=1e3, digits=1)),
        ("call of the first save, ms", "", of(line["first"][:1], "call", scale=1e3, digits=1), ""),
        ("call of a save, of a step", "<= 0.01",
         *(several([each["call"] / each["step"] for each in times], 3) for times in (ours, peer))),
        ("stall (the call, and what the step behind it takes longer), of the copy", "<= 1.05",
         stalls("seconds"), several([each["stall"] / copy for each in peer])),
        ("the same of the first save", "<= 1.05", stalls("first"), ""),
        ("a step, ms", "", *each_of("step", scale=1e3, digits=0)),
        ("files are written for, s", "", *each_of("seconds")),
        ("training's speed meanwhile", ">= 0.95", *each_of("speed")),
        ("its speed while they are read back", "", of(ours, "speed_reading_back"), ""),
        ("what training loses by a save, ms", "", *each_of("lost", scale=1e3, digits=0)),
        ("memory of a save, MB beyond a rank's share", "<= 64", *memory(0, share)),
        ("memory of the first load, MB beyond the state", "", *memory(1, line["state_mb"])),
    ]


def print_saves(lines):
    if not lines:
        return
    titles = [f"{name}, {line['ranks']} rank{'s' * (line['ranks'] > 1)}"
              for line in lines for name in ("lockstep", "PyTorch")]
    print("\n| " + " | ".join([f"{lines[0]['state_mb']:.0f} MB of state", "asked", *titles]) + " |")
    print("|" + "---|" * (2 + len(titles)))
    for row in zip(*(rows_of(line) for line in lines)):
        cells = [*row[0][:2], *(text for its in row for text in its[2:])]
        print("| " + " | ".join(cells) + " |")


def print_others(lines):
    print("\n| | asked | median | least |\n|---|---|---|---|")
    if "restart" in lines:
        line = lines["restart"]
        print(f"| kill -9 of a rank to the end of the next step, {line['state_mb']:.0f} MB, 2 ranks, "
              f"{line['kills']} times, s | <= 1.0 | {line['seconds_median']:.2f} | "
              f"{line['seconds_min']:.2f} |")
    if "order" in lines:
        line = lines["order"]
        print(f"| an index of 10^9, ns | about 11 | {line['permutation_ns']:.1f} | |")
        print(f"| the same of a sampler, 64 at once, ns | | {line['batch_64_ns']:.1f} | |")
        for name, workers in (("resume", "no workers"), ("resume_2_workers", "2 workers")):
            print(f"| first batch of 10^9 samples after resume, {workers}, ms | <= 50 | "
                  f"{line[name + '_ms_median']:.4f} | {line[name + '_ms_min']:.4f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--folder", default=".", help="on the disk that is measured")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--training-rounds", type=int, default=1)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--width", type=int, default=2032)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--kills", type=int, default=7)
    parser.add_argument("parts", nargs="*", metavar="saves|restart|order",
                        default=["saves", "restart", "order"])
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not before files and ranks are gone
    options.bin = str(pathlib.Path(options.bin).resolve())
    saves, others = [], {}
    if "saves" in options.parts:
        if subprocess.run([options.python, "-c", "import torch"], stderr=subprocess.DEVNULL,
                          check=False).returncode:
            print(f"{options.python} has no torch; name one that has with --python")
            return 77
        for size in options.ranks:
            saves.append(measure_saves(size, options))
            print(json.dumps(saves[-1]), flush=True)
    if "restart" in options.parts:
        others["restart"] = restart.measure(options.bin, options.kills, options.folder)
        print(json.dumps(others["restart"]), flush=True)
    if "order" in options.parts:
        program = os.path.join(options.bin, "benchmark_loader")
        others["order"] = json.loads(subprocess.run([program, "--json", "order"], check=True,
                                                    capture_output=True, text=True).stdout)
        print(json.dumps(others["order"]), flush=True)
    print_saves(saves)
    if others:
        print_others(others)
    return 0


if __name__ == "__main__":
    sys.exit(main())
