#!/usr/bin/env python3
"""Writes a file with Python's safetensors, lets lockstep read and rewrite it, and reads that back.

    round_trip.py TOOL
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

DTYPES = ["float64", "float32", "float16", "int64", "int32", "uint8", "bool"]
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (0, 4)]


def make_tensors():
    random = numpy.random.default_rng(7)
    tensors = {}
    for dtype in DTYPES:
        for shape in SHAPES:
            values = numpy.asarray(random.integers(0, 2 if dtype == "bool" else 100, shape))
            tensors[f"{dtype}/{'x'.join(map(str, shape))}/ü\"\\"] = values.astype(dtype)
    return tensors


def main():
    tensors, metadata = make_tensors(), {"made by": "Python", "quote": "\"\n\u00fc"}
    with tempfile.TemporaryDirectory() as folder:
        first, second = pathlib.Path(folder, "first"), pathlib.Path(folder, "second")
        save_file(tensors, str(first), metadata=metadata)
        subprocess.run([sys.argv[1], str(first), str(second)], check=True)
        back = load_file(str(second))
        with safe_open(str(second), "numpy") as file:
            assert file.metadata() == metadata, file.metadata()
    assert back.keys() == tensors.keys(), back.keys() ^ tensors.keys()
    for name, expected in tensors.items():
        actual = back[name]
        assert actual.dtype == expected.dtype and actual.shape == expected.shape, name
        assert actual.tobytes() == expected.tobytes(), name
    print(f"{len(tensors)} tensors went from Python to lockstep and back unchanged")


main()
