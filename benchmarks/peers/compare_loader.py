"""Epochs of lockstep's DataLoader and of PyTorch's, in turns, each at its best number of workers."""

import json
import os
import pathlib
import statistics
import tempfile
import time

from stepper import Stepper

WORKERS = (0, 1, 2)
FORMS = ("samples", "batches")


def best_workers(program):
    """The number of workers with the fastest epoch of two; the first one starts the workers."""
    def seconds(workers):
        program.step(f"epoch {workers}")
        return min(program.step(f"epoch {workers}")["seconds"] for _ in range(2))
    return min(WORKERS, key=seconds)


def waits(program, workers):
    """The share of its time that a consumer waits: the median of three."""
    epochs = [program.step(f"consume {workers}") for _ in range(3)]
    return statistics.median(epoch["waited"] / epoch["seconds"] for epoch in epochs)


def least_waits(program):
    """The same at the number of workers with the least."""
    return min(waits(program, workers) for workers in WORKERS)


def take_turns(ours, peer, workers, options):
    """Seconds of our epochs, of the peer's, and of copies of as many bytes."""
    mine, theirs, copies = [], [], []
    started = time.monotonic()
    while len(mine) < options.steps and time.monotonic() - started < options.seconds:
        mine.append(ours.step(f"epoch {workers[0]}")["seconds"])
        theirs.append(peer.step(f"epoch {workers[1]}")["seconds"])
        copies.append(ours.step(f"copy {workers[0]}")["seconds"])
    return mine, theirs, copies


def compare_form(case, form, ours, folder, options):
    script = pathlib.Path(__file__).with_name("torch_loader.py")
    peer = Stepper([options.python, str(script), case, folder, form], max(options.threads))
    sums = [program.step("check 0")["checksum"] for program in (ours, peer)]
    workers = best_workers(ours), best_workers(peer)
    mine, theirs, copies = take_turns(ours, peer, workers, options)
    waiting = least_waits(ours), least_waits(peer)
    peer.stop()
    sizes = json.loads((pathlib.Path(folder) / "sizes.json").read_text())
    ours_median, peer_median = statistics.median(mine), statistics.median(theirs)
    return {"benchmark": "loader against PyTorch", "case": case, "torch_form": form,
            "epochs": len(mine), "lockstep_workers": workers[0], "torch_workers": workers[1],
            "lockstep_ms_min": min(mine) * 1e3, "lockstep_ms_median": ours_median * 1e3,
            "torch_ms_min": min(theirs) * 1e3, "torch_ms_median": peer_median * 1e3,
            "ratio": peer_median / ours_median,
            "lockstep_samples_per_s": sizes["samples"] / ours_median,
            "torch_samples_per_s": sizes["samples"] / peer_median,
            "lockstep_gb_per_s": 1e-9 * sizes["bytes_moved"] / ours_median,
            "share_of_copy": statistics.median(copies) / ours_median,
            "step_ms": sizes["step_seconds"] * 1e3,
            "lockstep_waits": waiting[0], "torch_waits": waiting[1],
            "checksum_difference": abs(sums[0] - sums[1]) / abs(sums[1])}


def compare_loader(case, options):
    """One line for each way to write the peer's data set."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(options.bin, "benchmark_loader")
        ours = Stepper([program, "--serve", case, folder], max(options.threads))
        for form in FORMS:
            yield compare_form(case, form, ours, folder, options)
        ours.stop()
