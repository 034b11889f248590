"""What data_parallel.py measures: each part is a generator of result lines."""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time

from ranks import HERE, Peers

SIZES = (4 << 10, 1 << 20, 16 << 20, 64 << 20)
# How much of a link makes what is sent no more than some seconds.
LARGEST = {"host": 64 << 20, "1gbit": 64 << 20, "100mbit": 16 << 20}

LEAST_WITH_LATE_STARTS = 7


class Steps:
    """The steps of one mode: together, those of one rank alone, those of both, each for itself."""

    def __init__(self):
        self.together, self.alone, self.apart = [], [], []


def train(options, case, modes, alone, least):
    """Steps by mode, in turns: `options.steps`, or fewer after `options.seconds`, but `least`."""
    steps = {mode: Steps() for mode in modes}
    with Peers(options, case, modes) as peers:
        started = time.monotonic()
        for _ in range(max(least, options.steps)):
            for mode, ranks in peers.ranks.items():
                steps[mode].together.append(ranks.ask("step"))
                if alone:
                    steps[mode].alone.append(ranks.ask("alone", (0,)))
                    steps[mode].apart.append(ranks.ask("alone"))
            late = time.monotonic() - started > options.seconds
            if late and len(steps[modes[0]].together) >= least:
                break
    return steps


def warm(steps):
    """Without the first ones: a measured plan of buckets, and PowerSGD, come after some."""
    return steps[4 if len(steps) >= LEAST_WITH_LATE_STARTS else 1:]


def milliseconds(steps, field="seconds"):
    return [max(answer[field] for answer in answers) * 1e3 for answers in warm(steps)]


def hidden_of_best(at_best, exposed):
    """Of what any buckets could hide of the bytes' own time, as gradients were ready when they were:
    the last ones when backward ended. What ranks wait for each other is no communication here."""
    possible = at_best["communication"] - at_best["exposed"]
    return (at_best["communication"] - exposed) / possible if possible > 0 else 1.0


def overlap(steps):
    """Medians of rank 0's; `possible` is the shorter of communication and backward, as if all
    gradients were ready at once. Where buckets were measured, what was of the best ones, too."""
    answers = [answers[0]["overlap"] for answers in warm(steps) if "overlap" in answers[0]]
    if not answers:
        return {}
    communication, exposed, hidden, backward = (
        statistics.median(answer[field] for answer in answers)
        for field in ("communication", "exposed", "hidden", "backward"))
    possible = min(communication, backward)
    return {"all_reduce_ms": communication * 1e3, "exposed_ms": exposed * 1e3,
            "hidden_share": hidden / communication if communication > 0 else 1.0,
            "hidden_of_possible": hidden / possible if possible > 0 else 1.0,
            **({"exposed_at_best_ms": answers[-1]["at_best"]["exposed"] * 1e3,
                "hidden_of_best": hidden_of_best(answers[-1]["at_best"], exposed)}
               if "at_best" in answers[-1] else {})}


def efficiency(steps):
    """Against a step of one rank while the other has nothing to do; the ceiling is what two ranks
    reach that have nothing to do with each other."""
    together, one, each = (milliseconds(part) for part in (steps.together, steps.alone, steps.apart))
    processor, processor_alone = (milliseconds(part, "processor")
                                  for part in (steps.together, steps.alone))
    return {"alone_ms_median": statistics.median(one),
            "efficiency": statistics.median(one) / statistics.median(together),
            "efficiency_of_minima": min(one) / min(together),
            "efficiency_of_processor_time": min(processor_alone) / min(processor),
            "machine_ceiling": statistics.median(one) / statistics.median(each),
            "machine_ceiling_of_minima": min(one) / min(each)}


def compare_steps(options, case, modes, alone=False, least=3):
    steps = train(options, case, modes, alone, least)
    first = steps[modes[0]].together
    base = milliseconds(first)
    for mode, own in steps.items():
        times = milliseconds(own.together)
        last = own.together[-1]
        differences = [abs(a["loss"] - b["loss"]) / abs(b["loss"])
                       for answers, others in zip(own.together, first)
                       for a, b in zip(answers, others)]
        yield {"case": case, "mode": mode, "steps": len(times), "ms_median": statistics.median(times),
               "ms_min": min(times), "ratio": statistics.median(times) / statistics.median(base),
               "ratio_of_minima": min(times) / min(base),
               **(efficiency(own) if alone else {}), **overlap(own.together),
               "memory_mb": max(answer["memory_mb"] for answer in last),
               "peak_mb": max(answer["peak_mb"] for answer in last),
               "largest_loss_difference": max(differences)}


def all_reduce_of_mpi(options, arguments):
    """By bytes, a line of benchmark_host_all_reduce: a backend in turns with MPI_Allreduce."""
    command = ["mpirun", "-np", "2"]
    rounds = 2 if options.link != "host" else min(options.rounds, 15)
    if options.link == "host":
        command += ["--bind-to", "core"]
    environment = {**os.environ, "LOCKSTEP_SIM_DEVICES": "0"}
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    result = subprocess.run(
        [*command, os.path.join(options.bin, "benchmark_host_all_reduce"), "--json", "--rounds",
         str(rounds), "--largest", str(LARGEST[options.link]), *arguments],
        stdout=subprocess.PIPE, text=True, check=True, env=environment)
    lines = [json.loads(text) for text in result.stdout.splitlines() if text.startswith("{")]
    return {line["bytes"]: line for line in lines}


def all_reduce_of_mpich(options, sizes):
    """By bytes, microseconds of MPICH's; none where it is not installed, or between hosts."""
    if options.link != "host" or not shutil.which("mpicc.mpich"):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "mpi_all_reduce")
        subprocess.run(["mpicc.mpich", "-O2", str(HERE / "mpi_all_reduce.c"), "-o", program],
                       check=True)
        result = subprocess.run(["mpirun.mpich", "-n", "2", "-bind-to", "core", program,
                                 str(min(options.rounds, 15)), *map(str, sizes)],
                                stdout=subprocess.PIPE, text=True, check=True)
    return {line["bytes"]: line["us"] for line in map(json.loads, result.stdout.splitlines())}


def time_all_reduces(options, modes, sizes):
    """By bytes and backend, microseconds in turns."""
    trainings = list(dict.fromkeys(mode for mode, _ in modes.values()))
    times = {size: {name: [] for name in modes} for size in sizes}
    with Peers(options, "gpt_f32", trainings) as peers:
        for size in sizes:
            calls = max(1, min(10, (1 << 20) // size))  # each doubles the values
            started = time.monotonic()
            for _ in range(options.rounds):
                for name, (mode, place) in modes.items():
                    answers = peers.ranks[mode].ask(f"all_reduce {size} {calls} {place}")
                    for answer in answers:
                        if answer["loss"] != 2.0**calls / 1024:
                            raise RuntimeError(f"{name}: a wrong sum, {answer['loss']}")
                    times[size][name].append(answers[0]["seconds"] * 1e6)
                if time.monotonic() - started > options.seconds / len(sizes):
                    break
    return times


def compare_all_reduce(options):
    on_host = options.link == "host"
    modes = {"tcp": ("lockstep/tcp ddp", ""), "Gloo": ("PyTorch ddp", "")}
    if on_host:
        modes = {"shm": ("lockstep/shm ddp", ""), "shm in place": ("lockstep/shm ddp", "in_place"),
                 **modes}
    own = "shm in place" if on_host else "tcp"
    sizes = [size for size in SIZES if size <= LARGEST[options.link]]
    times = time_all_reduces(options, modes, sizes)
    beside = all_reduce_of_mpi(options, ["--comm", "shm", "--registered"] if on_host
                               else ["--comm", "tcp"])
    through = all_reduce_of_mpi(options, ["--comm", "mpi"])
    mpich = all_reduce_of_mpich(options, sizes)
    for size, by_name in times.items():
        us = {name: min(values) for name, values in by_name.items()}
        line = beside[size]
        beside_it = {"MPICH": mpich[size], "MPICH_ratio": mpich[size] / line["ours_us"]} if mpich else {}
        yield {"case": "all_reduce", "bytes": size, **us, "mpi": through[size]["ours_us"],
               "Open MPI": min(line["mpi_us"], through[size]["mpi_us"]), **beside_it,
               "copy": line["limit_us"], "Gloo_ratio": us["Gloo"] / us[own],
               "MPI_ratio": line["ratio"], "MPI_ratio_of_medians": line["ratio_of_medians"],
               "of_copy_rate": line["limit_us"] / line["ours_us"]}


def run_part(part, options):
    own = "lockstep/shm" if options.link == "host" else "lockstep/tcp"
    if part == "all_reduce":
        yield from compare_all_reduce(options)
    elif part == "step" and options.ranks_per_host > 1:
        for case in options.cases:
            yield from compare_steps(options, case,
                                     ["lockstep/hier ddp", "lockstep/tcp ddp", "PyTorch ddp"])
    elif part == "step":
        for case in options.cases:
            yield from compare_steps(options, case, [f"{own} ddp", "PyTorch ddp"], alone=True)
    elif part == "shard":
        # Memory that ranks share counts to each of them: of tcp it is what a rank takes.
        backends = ["lockstep/shm", "lockstep/tcp"] if options.link == "host" else [own]
        yield from compare_steps(options, "wide_f32", [
            *(f"{backend} {mode}" for backend in backends
              for mode in ("ddp", "zero1", "zero2", "zero3")),
            *(f"PyTorch {mode}" for mode in ("ddp", "zero1", "fsdp2", "fsdp3"))])
    elif part == "plan":
        yield from compare_steps(options, "gpt_f32",
                                 [f"{own} ddp", f"{own} measured", "PyTorch ddp"],
                                 least=LEAST_WITH_LATE_STARTS)
    elif part == "hooks":
        yield from compare_steps(options, "gpt_f32", [
            f"{library} {mode}" for library in (own, "PyTorch")
            for mode in ("ddp", "bf16", "powersgd")], least=LEAST_WITH_LATE_STARTS)
