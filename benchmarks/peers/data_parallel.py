#!/usr/bin/env python3
"""Data parallelism of lockstep and PyTorch, on two ranks with a core each, request by request in turn.

    data_parallel.py --bin build/bin [--python PYTHON] [--rate 100mbit] [--steps N] PART...

PARTs: all_reduce (lockstep's backends, Gloo and MPI_Allreduce, f32), step (DDP against DDP and each
against its own step on one rank), shard (ZeRO, ZeroRedundancyOptimizer and FSDP), plan (measured
buckets against those by sizes), hooks (compression). With --rate the ranks are on two hosts of
tests/support/hosts.sh, whose links carry so much. PYTHON is an interpreter that has torch and
safetensors. Prints a JSON line a case, and a table a part in the end. Losses are compared step by step:
without that no speed means anything.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
HOSTS_SCRIPT = HERE.parent.parent / "tests" / "support" / "hosts.sh"
SIZES = (4 << 10, 1 << 20, 16 << 20, 64 << 20)


def free_port():
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]


class Ranks:
    """Two processes that answer every line they are given with one JSON object each."""

    def __init__(self, command):
        hosts = os.environ.get("HOSTS")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
                       "WORLD_SIZE": "2", "MASTER_ADDR": "10.98.0.1" if hosts else "127.0.0.1",
                       "MASTER_PORT": str(free_port()), "LOCKSTEP_JOB_TOKEN": "benchmark",
                       "LOCKSTEP_SIM_DEVICES": "0", "GLOO_SOCKET_IFNAME": "e0" if hosts else "lo"}
        self.processes = [
            subprocess.Popen([*([hosts, "on", str(rank)] if hosts else []), "taskset", "-c",
                              str(rank), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True, env={**environment, "RANK": str(rank)})
            for rank in range(2)]
        for process in self.processes:
            if process.stdout.readline().strip() != "ready":
                self.stop()
                raise RuntimeError(f"{' '.join(command)} did not start")

    def ask(self, request, ranks=(0, 1)):
        """Answers in rank order; the seconds of the first are those of the slowest."""
        for rank in ranks:
            self.processes[rank].stdin.write(request + "\n")
            self.processes[rank].stdin.flush()
        answers = [json.loads(self.processes[rank].stdout.readline()) for rank in ranks]
        answers[0]["seconds"] = max(answer["seconds"] for answer in answers)
        return answers

    def stop(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


class Peers:
    """Trainings by name, that are started together and take turns."""

    def __init__(self, options, case, modes):
        self.folder = tempfile.mkdtemp()
        state = os.path.join(self.folder, "state.safetensors")
        self.ranks = {}
        for mode in modes:
            library, name = mode.split(" ")
            if library == "PyTorch":
                command = [options.python, str(HERE / "torch_rank.py"), name, case, state]
            else:
                backend = library.partition("/")[2]
                command = [os.path.join(options.bin, "benchmark_peer_rank"), name, case, state,
                           *(["--comm", backend] if backend else [])]
            self.ranks[mode] = Ranks(command)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for ranks in self.ranks.values():
            ranks.stop()
        shutil.rmtree(self.folder)


def train(options, case, modes, alone=False):
    """By mode, the steps; those of one rank alone; those of both, each for itself."""
    together, own, apart = ({mode: [] for mode in modes} for _ in range(3))
    with Peers(options, case, modes) as peers:
        started = time.monotonic()
        for _ in range(options.steps):
            for mode, ranks in peers.ranks.items():
                together[mode].append(ranks.ask("step"))
                if alone:
                    own[mode].append(ranks.ask("alone", (0,)))
                    apart[mode].append(ranks.ask("alone"))
            if time.monotonic() - started > options.seconds:
                break
    first = next(iter(together.values()))
    for steps in together.values():
        for i, answers in enumerate(steps):
            answers[0]["off"] = max(abs(a["loss"] - b["loss"]) / abs(b["loss"])
                                    for a, b in zip(answers, first[i]))
    return together, own, apart


def milliseconds(steps):
    warm = [answers[0]["seconds"] * 1e3 for answers in steps[max(1, len(steps) // 5):]]
    return {"steps": len(warm), "ms_min": min(warm), "ms_median": statistics.median(warm)}


def compare_steps(options, case, modes, alone=False):
    together, own, apart = train(options, case, modes, alone)
    base = milliseconds(together[modes[0]])
    for mode, steps in together.items():
        line = {"case": case, "mode": mode, **milliseconds(steps)}
        line["ratio"] = line["ms_median"] / base["ms_median"]
        line["ratio_of_minima"] = line["ms_min"] / base["ms_min"]
        if alone:
            one, each = milliseconds(own[mode]), milliseconds(apart[mode])
            line["alone_ms_median"] = one["ms_median"]
            line["efficiency"] = one["ms_median"] / line["ms_median"]
            line["efficiency_of_minima"] = one["ms_min"] / line["ms_min"]
            line["machine_ceiling"] = one["ms_median"] / each["ms_median"]
        else:
            line["memory_mb"] = max(answer["memory_mb"] for answer in steps[-1])
            line["peak_mb"] = max(answer["peak_mb"] for answer in steps[-1])
        line["largest_loss_difference"] = max(answers[0]["off"] for answers in steps)
        yield line


def all_reduce_of_mpi(options, rounds):
    command = ["mpirun", "-np", "2"]
    if not os.environ.get("HOSTS"):
        command += ["--bind-to", "core"]
    result = subprocess.run([*command, os.path.join(options.bin, "benchmark_host_all_reduce"),
                             "--json", "--comm", "mpi", "--rounds", str(rounds)],
                            capture_output=True, text=True, check=True)
    for text in result.stdout.splitlines():
        line = json.loads(text)
        if line["bytes"] in SIZES:
            yield {"bytes": line["bytes"], "Open MPI": line["mpi_us"], "mpi": line["ours_us"]}


def compare_all_reduce(options):
    own = ["lockstep/tcp ddp"] if options.rate else ["lockstep/shm ddp", "lockstep/tcp ddp"]
    modes = [*own, "PyTorch ddp"]
    times = {size: {mode: [] for mode in modes} for size in SIZES}
    with Peers(options, "gpt_f32", modes) as peers:
        for size in SIZES:
            calls = max(1, min(10, (1 << 20) // size))  # each doubles the values
            started = time.monotonic()
            while len(times[size][modes[0]]) < options.rounds:
                for mode, ranks in peers.ranks.items():
                    answers = ranks.ask(f"all_reduce {size} {calls}")
                    for answer in answers:
                        if answer["loss"] != 2.0**calls / 1024:
                            raise RuntimeError(f"{mode}: a wrong sum, {answer['loss']}")
                    times[size][mode].append(answers[0]["seconds"] * 1e6)
                if time.monotonic() - started > options.seconds / len(SIZES):
                    break
    mpi = {line["bytes"]: line for line in all_reduce_of_mpi(options, min(options.rounds, 10))}
    for size, by_mode in times.items():
        us = {mode.removeprefix("lockstep/").removesuffix(" ddp").replace("PyTorch", "Gloo"):
              min(values) for mode, values in by_mode.items()} | mpi[size]
        best = us[own[0].removeprefix("lockstep/").removesuffix(" ddp")]
        yield {"case": "all_reduce", **us, "Gloo_ratio": us["Gloo"] / best,
               "MPI_ratio": us["Open MPI"] / best}


def run_part(part, options):
    own = "lockstep/tcp" if options.rate else "lockstep/shm"
    if part == "all_reduce":
        yield from compare_all_reduce(options)
    elif part == "step":
        for case in options.cases:
            yield from compare_steps(options, case, [f"{own} ddp", "PyTorch ddp"], alone=True)
    elif part == "shard":
        yield from compare_steps(options, "wide_f32", [
            f"{own} ddp", f"{own} zero1", f"{own} zero2", "PyTorch ddp", "PyTorch zero1",
            "PyTorch fsdp"])
    elif part == "plan":
        yield from compare_steps(options, "gpt_f32", [f"{own} ddp", f"{own} measured"])
    elif part == "hooks":
        yield from compare_steps(options, "gpt_f32", [
            f"{own} ddp", f"{own} bf16", f"{own} powersgd", "PyTorch ddp", "PyTorch bf16",
            "PyTorch powersgd"])


def print_table(lines):
    columns = list(dict.fromkeys(key for line in lines for key in line if key != "benchmark"))
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for line in lines:
        cells = [line.get(column, "") for column in columns]
        print("| " + " | ".join(f"{cell:.4g}" if isinstance(cell, float) else str(cell)
                                for cell in cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rate", default="", help="two hosts, with links of so much, as tc has it")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20, help="of all-reduces at each size")
    parser.add_argument("--seconds", type=float, default=40, help="at most this long a case")
    parser.add_argument("--cases", type=lambda names: names.split(","),
                        default=["gpt_f32", "gpt_amp"], help="of the part step, as a,b")
    parser.add_argument("parts", nargs="*", default=["all_reduce", "step", "shard", "plan", "hooks"])
    options = parser.parse_args()
    if subprocess.run([options.python, "-c", "import torch, safetensors"],
                      stderr=subprocess.DEVNULL, check=False).returncode:
        print(f"{options.python} has no torch and safetensors; name one that has with --python")
        return 77
    if options.rate and not os.environ.get("HOSTS"):
        return subprocess.run([str(HOSTS_SCRIPT), "2", "--rate", options.rate, sys.executable,
                               *sys.argv], check=False).returncode
    tables = []
    for part in options.parts:
        tables.append([])
        for line in run_part(part, options):
            tables[-1].append({"benchmark": "data_parallel against PyTorch",
                               "link": options.rate or "one host", **line})
            print(json.dumps(tables[-1][-1]), flush=True)
    for lines in tables:
        print_table(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
