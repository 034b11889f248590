#!/usr/bin/env python3
"""PyTorch's side of benchmark_model_step on a GPU: the same models, sizes, autocast and optimizer.

    torch_gpu_step.py --model gpt2|resnet50 --batch N [--context N] [--steps N] [--way eager|compiled] [--small] [--device cuda]

Prints one JSON line a step, as benchmark_model_step does.
"""

import argparse
import json
import time

import torch
from torch.nn import functional

from torch_train_step import Gpt2, ResNet


def gpt2(options):
    """GPT-2 of 124 M parameters, AdamW, clipping to norm 1."""
    context = min(options.context, 64) if options.small else options.context
    vocabulary, channels, layers, heads = (512, 64, 2, 2) if options.small else (50257, 768, 12, 12)
    model = Gpt2(vocabulary, context, channels, layers, heads).to(options.device)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1, fused=True)
    tokens = torch.randint(vocabulary, (options.batch, context + 1), device=options.device)
    return model, optimizer, tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1), 1.0


def resnet50(options):
    """ResNet-50 on images of 224 x 224, channels-last, SGD with momentum."""
    model = (ResNet([2, 2, 2, 2], wide=False) if options.small else ResNet([3, 4, 6, 3], wide=True)).to(options.device)
    model = model.to(memory_format=torch.channels_last)
    side = 32 if options.small else 224
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    images = torch.rand(options.batch, 3, side, side, device=options.device).to(memory_format=torch.channels_last)
    return model, optimizer, images, torch.randint(1000, (options.batch,), device=options.device), None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["gpt2", "resnet50"], default="gpt2")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--way", choices=["eager", "compiled"], default="eager")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--device", default="cuda", help="cpu: to try this script")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    model, optimizer, inputs, targets, max_norm = {"gpt2": gpt2, "resnet50": resnet50}[options.model](options)
    forward = torch.compile(model) if options.way == "compiled" else model

    def step():
        with torch.autocast(options.device, torch.bfloat16):
            logits = forward(inputs)
            loss = functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets)
        loss.backward()
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    for number in range(options.steps):
        start = time.perf_counter()
        loss = step()
        print(json.dumps({"model": options.model, "batch": options.batch, "peer": f"torch {torch.__version__} {options.way}",
                          "step": number, "ms": (time.perf_counter() - start) * 1e3, "loss": loss}), flush=True)


if __name__ == "__main__":
    main()
