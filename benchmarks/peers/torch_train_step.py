#!/usr/bin/env python3
"""PyTorch's side of benchmark_train_step: the same models, weights, batches and optimizer.

    torch_train_step.py CASE FILE THREADS [eager|compiled]

Reads weights and batch from FILE, prints "ready", then runs one training step for every line on
standard input and prints its seconds and loss.
"""

import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """One GPT-2 layer under Hugging Face's names."""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(channels)
        self.attn = nn.ModuleDict(
            {"c_attn": nn.Linear(channels, 3 * channels), "c_proj": nn.Linear(channels, channels)})
        self.ln_2 = nn.LayerNorm(channels)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(channels, 4 * channels), "c_proj": nn.Linear(4 * channels, channels)})

    def forward(self, x):
        batch, length, channels = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.attn["c_attn"](self.ln_1(x)).split(channels, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](y.transpose(1, 2).reshape(batch, length, channels))
        hidden = functional.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](hidden)


class Gpt2(nn.Module):
    def __init__(self, vocabulary, context, channels, layers, heads):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, channels),
            "wpe": nn.Embedding(context, channels),
            "h": nn.ModuleList(Block(channels, heads) for _ in range(layers)),
            "ln_f": nn.LayerNorm(channels)})

    def forward(self, tokens):
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"](torch.arange(tokens.shape[1], device=tokens.device))
        for block in parts["h"]:
            x = block(x)
        return functional.linear(parts["ln_f"](x), parts["wte"].weight)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x))
        return self.layers[-1](x)


class ResidualBlock(nn.Module):
    """A block of two 3 x 3 convolutions, or of 1 x 1, 3 x 3 and 1 x 1, under torchvision's names."""

    def __init__(self, inner, planes, stride, wide):
        super().__init__()
        out = planes * 4 if wide else planes
        shapes = ([(inner, planes, 1, 1), (planes, planes, 3, stride), (planes, out, 1, 1)] if wide
                  else [(inner, planes, 3, stride), (planes, planes, 3, 1)])
        self.depth = len(shapes)
        for i, (channels, width, kernel, step) in enumerate(shapes, 1):
            self.add_module(f"conv{i}", nn.Conv2d(channels, width, kernel, step, kernel // 2, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm2d(width))
        if stride != 1 or inner != out:
            self.downsample = nn.Sequential(nn.Conv2d(inner, out, 1, stride, bias=False),
                                            nn.BatchNorm2d(out))
        else:
            self.downsample = None

    def forward(self, x):
        y = x
        for i in range(1, self.depth + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.depth:
                y = functional.relu(y, inplace=True)
        y += x if self.downsample is None else self.downsample(x)
        return functional.relu(y, inplace=True)


class ResNet(nn.Module):
    def __init__(self, blocks, wide):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inner = 64
        for i, count in enumerate(blocks):
            planes = 64 << i
            stage = []
            for j in range(count):
                stage.append(ResidualBlock(inner, planes, 2 if i > 0 and j == 0 else 1, wide))
                inner = planes * 4 if wide else planes
            self.add_module(f"layer{i + 1}", nn.Sequential(*stage))
        self.fc = nn.Linear(inner, 1000)

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = functional.max_pool2d(y, 3, 2, 1)
        for i in range(1, 5):
            y = getattr(self, f"layer{i}")(y)
        return self.fc(torch.flatten(functional.adaptive_avg_pool2d(y, 1), 1))


def make_case(name, state):
    """The model, its input and its targets."""
    if name.startswith("resnet"):
        inputs, targets = state.pop("x"), state.pop("targets")
        model = (ResNet([3, 4, 6, 3], wide=True) if name.startswith("resnet50")
                 else ResNet([2, 2, 2, 2], wide=False))
        model.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)
    elif name.startswith("gpt"):
        tokens = state.pop("tokens")
        model = (Gpt2(vocabulary=50304, context=1024, channels=768, layers=12, heads=12)
                 if name.startswith("gpt2")
                 else Gpt2(vocabulary=4096, context=256, channels=256, layers=4, heads=4))
        inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)
    else:
        inputs, targets = state.pop("x"), state.pop("targets")
        model = Mlp()
    model.load_state_dict(state)
    if name.endswith("_bf16"):
        model.to(torch.bfloat16)
        inputs = inputs.to(torch.bfloat16) if inputs.is_floating_point() else inputs
    return model, inputs, targets


def main():
    import safetensors.torch  # the models alone do without it

    name, path, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(threads)
    model, inputs, targets = make_case(name, safetensors.torch.load_file(path))
    if name.startswith("resnet"):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    else:
        rate = 1e-4 if name.startswith("gpt") else 1e-3
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    forward = torch.compile(model) if sys.argv[4:] == ["compiled"] else model

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=name.endswith("amp")):
            logits = forward(inputs)
            loss = functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        loss = step()
        print(json.dumps({"seconds": time.perf_counter() - start, "loss": loss}), flush=True)


if __name__ == "__main__":
    main()
