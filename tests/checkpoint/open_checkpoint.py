#!/usr/bin/env python3
"""Opens all files of tensors of a checkpoint with Python's safetensors, by the names in its indexes.

    open_checkpoint.py CHECKPOINT_JOB        77: Python has no safetensors and numpy
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    from safetensors import safe_open
except ImportError:
    sys.exit(77)


def open_state(index):
    """Reads every tensor of a state. Returns how many there are, and their bytes."""
    described = json.loads(index.read_text())
    names, total = set(), 0
    for file in sorted(set(described["weight_map"].values())):
        with safe_open(str(index.parent / file), "numpy") as tensors:
            for name in tensors.keys():
                assert described["weight_map"][name] == file, name
                names.add(name)
                total += tensors.get_tensor(name).nbytes
    assert names == described["weight_map"].keys(), names ^ described["weight_map"].keys()
    assert total == described["metadata"]["total_size"], total
    return names


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder, "2"], check=True, stdout=subprocess.DEVNULL)
        checkpoint = pathlib.Path(folder, "step-2")
        states = {index.name.split(".")[0]: open_state(index)
                  for index in checkpoint.glob("*.safetensors.index.json")}
    assert {"model", "optimizer"} <= states.keys(), states.keys()
    assert "hidden.weight" in states["model"], states["model"]
    assert "hidden.weight.exp_avg" in states["optimizer"], states["optimizer"]
    print({state: len(names) for state, names in states.items()})


main()
