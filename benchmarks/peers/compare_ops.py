"""Single ops of lockstep and of PyTorch, in turns."""

import os
import pathlib

from stepper import Stepper

ROUNDS = 3


def compare_ops(threads, options):
    """A line for each op: the least times of both, and how far what they computed differs."""
    script = pathlib.Path(__file__).with_name("torch_ops.py")
    ours = Stepper([os.path.join(options.bin, "benchmark_ops"), "--serve", "--threads",
                    str(threads)], threads)
    peer = Stepper([options.python, str(script), str(threads)], threads)
    names = ours.step("names")
    if names != peer.step("names"):
        raise SystemExit("benchmark_ops and torch_ops.py have not the same cases")
    for name in names:
        rounds = [(ours.step(name), peer.step(name)) for _ in range(ROUNDS)]
        mine, theirs = (min(each[side]["seconds"] for each in rounds) for side in (0, 1))
        sums = [rounds[0][side]["checksum"] for side in (0, 1)]
        yield {"benchmark": "op against PyTorch", "case": name, "threads": threads,
               "lockstep_ms_min": mine * 1e3, "torch_ms_min": theirs * 1e3, "ratio": theirs / mine,
               "checksum_difference": abs(sums[0] - sums[1]) / max(abs(sums[1]), 1e-30)}
    ours.stop()
    peer.stop()
