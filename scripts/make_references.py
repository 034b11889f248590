#!/usr/bin/env python3
"""Writes tests/data/reference/layers.safetensors: results of PyTorch for ops that tests/data/golden
does not cover, in the same form (see the README there). Needs PyTorch; run it again only to add cases.

    scripts/make_references.py
"""

import json
import pathlib
import struct

import torch
import torch.nn.functional as F

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "reference"
NAMES = {torch.float64: "F64", torch.float32: "F32", torch.int64: "I64"}


class References:
    """Cases and their tensors."""

    def __init__(self):
        self.tensors, self.cases = {}, []

    def store(self, name, tensor):
        self.tensors[name] = tensor.detach().contiguous()
        return name

    def add(self, name, op, args, inputs, function):
        """Runs `function(*inputs)`, with gradients for all inputs by random output gradients."""
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        outputs = function(*leaves)
        outputs = [outputs] if torch.is_tensor(outputs) else list(outputs)
        gradients = [torch.randn_like(y) for y in outputs]
        torch.autograd.backward(outputs, gradients)
        self.cases.append({
            "name": name, "op": op, "args": args,
            "inputs": [self.store(f"{name}/in.{i}", x) for i, x in enumerate(leaves)],
            "outputs": [self.store(f"{name}/out.{i}", y) for i, y in enumerate(outputs)],
            "grad_outputs": [self.store(f"{name}/dout.{i}", g) for i, g in enumerate(gradients)],
            "grads": [None if x.grad is None else self.store(f"{name}/din.{i}", x.grad)
                      for i, x in enumerate(leaves)]})

    def write(self, path):
        header = {"__metadata__": {"made_with": f"torch {torch.__version__}",
                                   "cases": json.dumps(self.cases)}}
        data = b""
        for name, tensor in self.tensors.items():
            raw = struct.pack(f"<{tensor.numel()}d", *tensor.flatten().tolist())
            header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                            "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def add_losses(to):
    probabilities, targets = torch.rand(4, 5, dtype=torch.float64), torch.rand(4, 5, dtype=torch.float64)
    for reduction in ("mean", "sum", "none"):
        to.add(f"bce_{reduction}", "binary_cross_entropy", {"reduction": reduction},
               [probabilities, targets],
               lambda x, t: F.binary_cross_entropy(x, t, reduction=reduction))
    certain = torch.tensor([0.0, 1.0, 0.0, 1.0, 1e-50, 0.5], dtype=torch.float64)
    truth = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 0.25], dtype=torch.float64)
    to.add("bce_certain", "binary_cross_entropy", {"reduction": "none"}, [certain, truth],
           lambda x, t: F.binary_cross_entropy(x, t, reduction="none"))
    to.cases[-1]["grads"][1] = None  # PyTorch's is infinite, which the bounded loss is not
    weight = torch.rand(5, dtype=torch.float64)
    case = "bce_weighted"
    to.add(case, "binary_cross_entropy", {"reduction": "mean"}, [probabilities, targets],
           lambda x, t: F.binary_cross_entropy(x, t, weight=weight))
    to.cases[-1]["inputs"].append(to.store(f"{case}/in.2", weight))
    to.cases[-1]["grads"].append(None)


def add_convolutions(to):
    for name, shape, kernel, args in (
            ("conv1d_plain", (2, 3, 9), (4, 3, 3), {}),
            ("conv1d_dilated_groups", (2, 4, 12), (6, 2, 3), {"dilation": 2, "groups": 2, "padding": 2})):
        to.add(name, "conv1d", args, [randn(*shape), randn(*kernel), randn(kernel[0])],
               lambda x, w, b: F.conv1d(x, w, b, **args))
    for name, shape, kernel, args in (
            ("conv_transpose2d_plain", (2, 3, 4, 5), (3, 2, 3, 3), {}),
            ("conv_transpose2d_groups", (2, 4, 4, 3), (4, 3, 2, 3), {"groups": 2, "stride": [2, 1]}),
            ("conv_transpose2d_dilated", (1, 2, 4, 4), (2, 3, 3, 2),
             {"dilation": [2, 3], "padding": [1, 2], "stride": 2, "output_padding": 1}),
            ("conv_transpose2d_wide_output_padding", (1, 2, 3, 3), (2, 2, 3, 3),
             {"dilation": 3, "padding": 2, "output_padding": [2, 1]})):
        bias = kernel[1] * args.get("groups", 1)
        to.add(name, "conv_transpose2d", args, [randn(*shape), randn(*kernel), randn(bias)],
               lambda x, w, b: F.conv_transpose2d(x, w, b, **args))


def add_interpolations(to):
    image = randn(2, 3, 5, 4)
    for name, args in (
            ("nearest_smaller", {"size": [3, 2], "mode": "nearest"}),
            ("nearest_factor", {"scale_factor": [2.0, 1.7], "mode": "nearest"}),
            ("bilinear_smaller", {"size": [3, 2], "mode": "bilinear", "align_corners": False}),
            ("bilinear_twice", {"scale_factor": [2.0, 2.0], "mode": "bilinear", "align_corners": False}),
            ("bilinear_factor", {"scale_factor": [1.7, 0.6], "mode": "bilinear", "align_corners": False}),
            ("bilinear_aligned", {"size": [8, 7], "mode": "bilinear", "align_corners": True}),
            ("bilinear_aligned_to_one", {"size": [1, 3], "mode": "bilinear", "align_corners": True})):
        given = {key: tuple(value) if isinstance(value, list) else value for key, value in args.items()}
        to.add(f"interpolate_{name}", "interpolate", args, [image], lambda x: F.interpolate(x, **given))


def add_recurrent(to):
    """Inputs: x, first states, then the parameters in PyTorch's order."""
    for op, layer, states, args in (
            ("lstm", torch.nn.LSTM, 2, {"num_layers": 2, "bidirectional": True}),
            ("lstm", torch.nn.LSTM, 2, {"bias": False, "batch_first": True}),
            ("gru", torch.nn.GRU, 1, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
            ("gru", torch.nn.GRU, 1, {"bias": False})):
        module = layer(4, 3, dtype=torch.float64, **args)
        names, parameters = zip(*module.named_parameters())
        directions = 2 if args.get("bidirectional") else 1
        first = [randn(args.get("num_layers", 1) * directions, 2, 3) for _ in range(states)]
        x = randn(2, 5, 4) if args.get("batch_first") else randn(5, 2, 4)

        def run(x, *rest):
            state, weights = rest[:states], rest[states:]
            hx = state[0] if states == 1 else list(state)
            return getattr(torch, op)(x, hx, list(weights), module.bias, module.num_layers, 0.0, True,
                                      module.bidirectional, module.batch_first)

        to.add(f"{op}_{'two_ways' if directions == 2 else 'no_bias'}", op,
               {**args, "states": states, "parameters": list(names)}, [x, *first, *parameters], run)


def main():
    torch.manual_seed(7)
    references = References()
    for add in (add_losses, add_convolutions, add_interpolations, add_recurrent):
        add(references)
    path = FOLDER / "layers.safetensors"
    references.write(path)
    print(f"{path}: {len(references.cases)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
