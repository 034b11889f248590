#!/usr/bin/env python3
"""Writes tests/data/golden/vit-tiny.safetensors: what torchvision's VisionTransformer makes of images in f64,
its loss, gradients and training. Weights and images are those of the fill rule (tests/data/golden/README.md).
Needs PyTorch and torchvision.

    scripts/make_vit_reference.py
"""

import json
import math
import pathlib

import numpy
import torch
from safetensors.torch import save_file
from torchvision.models import VisionTransformer

FILE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "golden" / "vit-tiny.safetensors"
BATCH, CLASSES, SIDE, STEPS = 4, 5, 16, 5


def fill(name, shape):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    n = math.prod(shape)
    z = numpy.uint64(h) + numpy.arange(1, n + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> numpy.uint64(shift))) * numpy.uint64(factor)
    z ^= z >> numpy.uint64(31)
    u = 2 * ((z >> numpy.uint64(40)).astype(numpy.float64) * 2.0**-24) - 1
    if len(shape) >= 2:
        u *= math.sqrt(3 / (n / shape[0]))
    elif name.endswith("weight"):
        u = 1 + 0.1 * u
    else:
        u *= 0.1
    return torch.from_numpy(u.astype(numpy.float32).reshape(shape)).double()


def images(step):
    return fill(f"input.images.{step}", (BATCH, 3, SIDE, SIDE)) * 20


def loss_of(model, step, labels):
    logits = model(images(step))
    return logits, torch.nn.functional.cross_entropy(logits, labels)


def main():
    model = VisionTransformer(image_size=SIDE, patch_size=4, num_layers=2, num_heads=2, hidden_dim=16,
                              mlp_dim=24, num_classes=CLASSES).double()
    for name, parameter in model.named_parameters():
        parameter.data = fill(name, tuple(parameter.shape))
    labels = torch.tensor([3, 0, 4, 1])
    out = {"labels": labels}
    model.eval()
    out["logits"], out["loss"] = loss_of(model, 0, labels)
    out["loss"].backward()
    out |= {f"grad.{name}": p.grad.clone() for name, p in model.named_parameters()}
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.1)
    losses = []
    for step in range(STEPS):
        _, loss = loss_of(model, step, labels)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.detach())
        optimizer.step()
    out["train_losses"] = torch.stack(losses)
    out |= {f"after.{name}": p for name, p in model.named_parameters()}
    names = [[name, list(p.shape)] for name, p in model.named_parameters()]
    save_file({name: value.detach().clone().contiguous() for name, value in out.items()}, FILE,
              {"parameters": json.dumps(names),
               "training": "AdamW lr 4e-3, weight_decay 0.1 on every parameter; step s takes images "
                           "20 * fill('input.images.s') and the labels; all in f64"})


if __name__ == "__main__":
    main()
