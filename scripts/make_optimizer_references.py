#!/usr/bin/env python3
"""Writes tests/data/reference/optimizer_steps.safetensors: trajectories of PyTorch's optimizers that
tests/data/golden does not have, in the same form (see the README there). Needs PyTorch; run it again
only to add cases.

    scripts/make_optimizer_references.py
"""

import json
import pathlib
import struct

import torch

FILE = (pathlib.Path(__file__).resolve().parent.parent /
        "tests/data/reference/optimizer_steps.safetensors")
SHAPES = [(6, 4), (3, 5), (7,)]
STEPS = 10

CASES = [
    ("rmsprop_plain", "RMSprop", {"lr": 0.01}),
    ("rmsprop_decay", "RMSprop", {"lr": 0.01, "alpha": 0.9, "weight_decay": 0.1, "maximize": True}),
    ("rmsprop_momentum", "RMSprop", {"lr": 0.01, "momentum": 0.9}),
    ("rmsprop_centered", "RMSprop", {"lr": 0.01, "centered": True, "eps": 1e-4}),
    ("adagrad_initial", "Adagrad", {"lr": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("adagrad_uphill", "Adagrad", {"lr": 0.1, "lr_decay": 0.1, "maximize": True}),
    ("nadam_decay", "NAdam", {"lr": 0.02, "weight_decay": 0.1, "momentum_decay": 0.1}),
    ("nadam_decoupled", "NAdam", {"lr": 0.02, "betas": [0.8, 0.95], "weight_decay": 0.1,
                                  "decoupled_weight_decay": True, "maximize": True}),
    ("radam_decay", "RAdam", {"lr": 0.02, "betas": [0.9, 0.9], "weight_decay": 0.1}),
    ("radam_decoupled", "RAdam", {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True,
                                  "maximize": True}),
    ("adamax_decay", "Adamax", {"lr": 0.02, "betas": [0.8, 0.9], "weight_decay": 0.1}),
    ("adamax_uphill", "Adamax", {"lr": 0.02, "maximize": True}),
    ("adam_uphill", "Adam", {"lr": 0.02, "amsgrad": True, "maximize": True}),
    ("adamw_amsgrad", "AdamW", {"lr": 0.02, "amsgrad": True}),
    ("adafactor", "Adafactor", {"lr": 0.1}),
    ("adafactor_decay", "Adafactor", {"lr": 0.1, "beta2_decay": -0.5, "eps": [1e-8, 1e-2], "d": 2.0,
                                      "weight_decay": 0.1, "maximize": True}),
    ("muon", "Muon", {"lr": 0.05}),
    ("muon_plain", "Muon", {"lr": 0.05, "weight_decay": 0.0, "momentum": 0.5, "nesterov": False,
                            "ns_steps": 3, "adjust_lr_fn": "match_rms_adamw"}),
]


def parameters_of(optimizer, parameters):
    """Those that an optimizer takes: Muon takes matrices."""
    return [p for p in parameters if optimizer != "Muon" or p.dim() == 2]


def trajectory(optimizer, args, starts, gradients):
    """All parameters after each step, computed in f64 throughout."""
    parameters = [start.clone().requires_grad_() for start in starts]
    made = getattr(torch.optim, optimizer)(parameters_of(optimizer, parameters), **args)
    for step in gradients:
        for parameter, gradient in zip(parameters, step):
            parameter.grad = gradient.clone()
        made.step()
        yield [parameter.detach().clone() for parameter in parameters]


def main():
    torch.manual_seed(9)
    # Muon's iteration is written for bf16; the references are in f64 as all others.
    original = torch.Tensor.to
    torch.Tensor.to = lambda self, *args, **kwargs: (
        self.clone() if kwargs.get("dtype") == torch.bfloat16 else original(self, *args, **kwargs))
    starts = [torch.randn(shape, dtype=torch.float64) for shape in SHAPES]
    gradients = [[torch.randn(shape, dtype=torch.float64) for shape in SHAPES]
                 for _ in range(STEPS)]
    tensors = {f"param.{i}": start for i, start in enumerate(starts)}
    for t, step in enumerate(gradients):
        tensors |= {f"grad.{t}.{i}": gradient for i, gradient in enumerate(step)}
    for name, optimizer, args in CASES:
        given = {key: tuple(value) if isinstance(value, list) else value
                 for key, value in args.items()}
        for t, after in enumerate(trajectory(optimizer, given, starts, gradients)):
            tensors |= {f"{name}/after.{t}.{i}": value for i, value in enumerate(after)}
    cases = [{"name": name, "optimizer": optimizer, "args": args}
             for name, optimizer, args in CASES]
    header = {"__metadata__": {"made_with": f"torch {torch.__version__}",
                               "cases": json.dumps(cases)}}
    data = b""
    for name, tensor in tensors.items():
        raw = struct.pack(f"<{tensor.numel()}d", *tensor.flatten().tolist())
        header[name] = {"dtype": "F64", "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    FILE.write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
