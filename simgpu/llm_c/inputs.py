#!/usr/bin/env python3
"""Writes what a run of llm.c reads, in its formats: a small GPT-2, tokens, and a tokenizer whose tokens are of one byte.

  inputs.py FOLDER

model_fp32.bin and model_bf16.bin hold the same weights (the latter rounded), and gpt2_124M.bin, the name that
train_gpt2_fp32.cu asks for, is the former. tokens_1.bin repeats one batch of 2 rows of 64 tokens for ever, tokens_2.bin
two of them, for two ranks, so that the order of llm.c's data loader makes no difference. tokens_step.bin has two batches of
64 rows of 1,024 tokens of GPT-2."""

import array
import os
import random
import struct
import sys

LAYERS, HEADS, CHANNELS, POSITIONS = 2, 2, 128, 64
ROWS = 2
# With fewer tokens than 8 times the threads of a block the loop of prepare_softmax_blockwide3 never ends.
TOKENS, PADDED = 8193, 8320
GPT2_TOKENS = 50257


def shapes():
    """Parameters in the order of llm.c: name, elements, and how they begin."""
    weight, ones, zeros = 0.02, 1.0, 0.0
    residual = 0.02 / (2 * LAYERS) ** 0.5
    c, layers = CHANNELS, LAYERS
    return [
        ("wte", (PADDED, c), weight), ("wpe", (POSITIONS, c), weight),
        ("ln1w", (layers, c), ones), ("ln1b", (layers, c), zeros),
        ("qkvw", (layers, 3 * c, c), weight), ("qkvb", (layers, 3 * c), zeros),
        ("attprojw", (layers, c, c), residual), ("attprojb", (layers, c), zeros),
        ("ln2w", (layers, c), ones), ("ln2b", (layers, c), zeros),
        ("fcw", (layers, 4 * c, c), weight), ("fcb", (layers, 4 * c), zeros),
        ("fcprojw", (layers, c, 4 * c), residual), ("fcprojb", (layers, c), zeros),
        ("lnfw", (c,), ones), ("lnfb", (c,), zeros),
    ]


def parameters():
    """Name, shape and values (array of floats) of each."""
    chance = random.Random(42)
    for name, shape, start in shapes():
        count = 1
        for extent in shape:
            count *= extent
        drawn = start not in (0.0, 1.0)
        values = [chance.gauss(0, start) if drawn else start for _ in range(count)]
        if name == "wte":  # of what pads the tokens, nothing may come
            values[TOKENS * CHANNELS :] = [0.0] * ((PADDED - TOKENS) * CHANNELS)
        yield name, shape, array.array("f", values)


def batch(number):
    """The tokens of one batch."""
    chance = random.Random(number)
    return [chance.randrange(TOKENS) for _ in range(ROWS * POSITIONS)]


def rounded(values):
    """The upper halves of floats, to nearest even."""
    bits = array.array("I", values.tobytes())
    return array.array("H", (((each + 0x7FFF + (each >> 16 & 1)) >> 16) & 0xFFFF for each in bits))


def write_tokens(path, tokens):
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253))
        array.array("H", tokens).tofile(file)


def write(folder):
    os.makedirs(folder, exist_ok=True)
    values = list(parameters())
    for name, version in (("model_fp32.bin", 3), ("gpt2_124M.bin", 3), ("model_bf16.bin", 5)):
        header = [20240326, version, POSITIONS, TOKENS, LAYERS, HEADS, CHANNELS, PADDED]
        with open(os.path.join(folder, name), "wb") as file:
            file.write(struct.pack("<256i", *header, *[0] * (256 - len(header))))
            for _, _, numbers in values:
                (numbers if version == 3 else rounded(numbers)).tofile(file)
    for ranks in (1, 2):
        tokens = [token for number in range(ranks) for token in batch(number)] * 12
        write_tokens(os.path.join(folder, f"tokens_{ranks}.bin"), tokens + tokens[:1])
    chance = random.Random(7)
    write_tokens(os.path.join(folder, "tokens_step.bin"), [chance.randrange(GPT2_TOKENS) for _ in range(2 * 64 * 1024 + 1)])
    with open(os.path.join(folder, "gpt2_tokenizer.bin"), "wb") as file:
        file.write(struct.pack("<256I", 20240328, 2, TOKENS, 0, *[0] * 252))
        for token in range(TOKENS):
            file.write(bytes([1, token % 256]))


if __name__ == "__main__":
    write(sys.argv[1])
