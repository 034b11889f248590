#!/usr/bin/env python3
"""llm.c's side of the case gpt2_f32: the same weights, batch and optimizer, on the CPU.

    llmc_train_step.py FILE LLMC_DIR

Reads weights and batch from FILE, compiles llm.c's train_gpt2.c of the checkout LLMC_DIR by the
options of its Makefile, and becomes that program (llmc_train_step.c), which answers every line on
standard input with the seconds and the loss of a step.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import safetensors.numpy

MAGIC, VERSION = 20240326, 3  # of llm.c's f32 checkpoints
HEADS = 12
LAYER_PARTS = ("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias",
               "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias",
               "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias")


def write_checkpoint(state, path):
    vocabulary, channels = state["transformer.wte.weight"].shape
    context = state["transformer.wpe.weight"].shape[0]
    layers = sum(name.endswith("ln_1.weight") for name in state)
    header = numpy.zeros(256, numpy.int32)
    header[:8] = MAGIC, VERSION, context, vocabulary, layers, HEADS, channels, vocabulary
    with open(path, "wb") as file:
        file.write(header.tobytes())
        for name in ("wte.weight", "wpe.weight"):
            file.write(state[f"transformer.{name}"].tobytes())
        for part in LAYER_PARTS:
            for layer in range(layers):
                file.write(state[f"transformer.h.{layer}.{part}"].tobytes())
        for name in ("ln_f.weight", "ln_f.bias"):
            file.write(state[f"transformer.{name}"].tobytes())


def main():
    path, llmc = sys.argv[1:]
    state = safetensors.numpy.load_file(path)
    tokens = state.pop("tokens")
    folder = pathlib.Path(path).parent if path.startswith(tempfile.gettempdir()) else pathlib.Path(
        tempfile.mkdtemp())
    write_checkpoint(state, folder / "llmc.bin")
    (folder / "llmc.tokens").write_bytes(tokens.astype(numpy.int32).tobytes())
    program = folder / "llmc_train_step"
    subprocess.run(["gcc", "-Ofast", "-march=native", "-fopenmp", "-DOMP", "-w", "-I", llmc, "-o", program,
                    pathlib.Path(__file__).with_suffix(".c"), "-lm"], check=True)
    os.execv(program, [program, folder / "llmc.bin", folder / "llmc.tokens",
                       str(tokens.shape[0]), str(tokens.shape[1] - 1)])


if __name__ == "__main__":
    main()
