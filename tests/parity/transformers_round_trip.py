#!/usr/bin/env python3
"""Hugging Face's transformers reads a GPT-2 that train_gpt saved, and computes what lockstep learned.

    transformers_round_trip.py BIN GOLDEN

Replays the reference training run from GOLDEN with BIN/train_gpt, saves the model as a folder, loads
it with `from_pretrained`, and compares every weight with the reference run's, and the loss of the
next batch before and after a second round through `save_pretrained` and train_gpt.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers


def train(binary, golden, start, steps, folder):
    """Runs train_gpt on the reference batches; returns the log's lines."""
    log = folder / "log.jsonl"
    subprocess.run(
        [binary / "train_gpt", "--init-from", start, "--tokens", golden / "expected.safetensors",
         "--steps", str(steps), "--lr", "4e-3", "--schedule", "constant", "--warmup", "0",
         "--weight-decay", "0.1", "--decay", "all", "--dtype", "f64", "--device", "cpu", "--save",
         folder / "saved", "--log", log], check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in log.read_text().splitlines()]


def loss_of(model, tokens):
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).item()


def main():
    binary, golden = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) / "gpt2-tiny"
    expected = safetensors.torch.load_file(golden / "expected.safetensors")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        train(binary, golden, golden, len(expected["tokens"]), folder)
        model = transformers.GPT2LMHeadModel.from_pretrained(folder / "saved", dtype=torch.float64)
        model.eval()
        state = model.state_dict()
        compared = 0
        for key, value in expected.items():
            if key.startswith("after."):
                distance = (state[key[6:]] - value).norm() / value.norm()
                assert distance < 1e-7, f"{key}: {distance}"
                compared += 1
        assert compared == 28, compared
        model.save_pretrained(folder / "again")
        first = train(binary, golden, folder / "again", 1, folder)[0]["loss"]
        theirs = loss_of(model, expected["tokens"][0])
        assert abs(first - theirs) < 1e-9 * theirs, (first, theirs)
    print(f"{compared} tensors went from lockstep to transformers and back; loss {theirs}")


main()
