#!/usr/bin/env python3
"""Writes tests/data/reference/autocast.json: the dtype of each op's result under PyTorch's autocast to bf16.

    scripts/make_autocast_reference.py    needs PyTorch 2.15, no GPU; writes the same bytes every time

Each op is called with f32 operands, with bf16 ones, and (where it has several) with bf16 beside f32, on
PyTorch's CUDA device and on its CPU. Tensors are fake: PyTorch finds dtypes without computing, so that its
rules for GPUs can be recorded where there is none. Where PyTorch refuses, `refused` is recorded.
"""

import json
import pathlib

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.bool: "bool"}
TARGET = pathlib.Path(__file__).resolve().parent.parent / "tests/data/reference/autocast.json"


def lstm(x, weight):
    return torch.lstm_cell(x, (x, x), weight.repeat(4, 1), weight.repeat(4, 1))[0]


def gru(x, weight):
    return torch.gru_cell(x, x, weight.repeat(3, 1), weight.repeat(3, 1))


# Under lockstep's names. Operands are [4, 4], those of convolutions, images and attention [4, 4, 4, 4].
UNARY = {
    "neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "floor": torch.floor,
    "ceil": torch.ceil, "round": torch.round, "trunc": torch.trunc, "square": torch.square,
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "exp": torch.exp,
    "expm1": torch.expm1, "log": torch.log, "log2": torch.log2, "log10": torch.log10,
    "log1p": torch.log1p, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan,
    "atan": torch.atan, "asin": torch.asin, "acos": torch.acos, "sinh": torch.sinh, "cosh": torch.cosh,
    "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh, "erf": torch.erf, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "relu": torch.relu, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "softplus": F.softplus, "mish": F.mish,
    "elu": F.elu, "hardswish": F.hardswish, "leaky_relu": F.leaky_relu,
    "clamp": lambda x: torch.clamp(x, 0, 1), "pow_scalar": lambda x: torch.pow(x, 3.0),
    "div_scalar": lambda x: x / 3.0,
    "amax": torch.amax, "amin": torch.amin, "max": torch.max, "min": torch.min,
    "mean": torch.mean, "sum": torch.sum, "prod": torch.prod, "var": torch.var, "std": torch.std,
    "norm": torch.linalg.vector_norm, "normalize": F.normalize, "nan_to_num": torch.nan_to_num, "cumsum": lambda x: torch.cumsum(x, 0),
    "logsumexp": lambda x: torch.logsumexp(x, 0), "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)), "rms_norm": lambda x: F.rms_norm(x, (4,)),
    "group_norm": lambda x: F.group_norm(x, 2), "dropout": F.dropout,
    "embedding": lambda x: F.embedding(torch.zeros(3, dtype=torch.long, device=x.device), x),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(4, dtype=torch.long,
                                                              device=x.device)),
    "nll_loss": lambda x: F.nll_loss(x, torch.zeros(4, dtype=torch.long, device=x.device)),
    "clone": torch.clone, "flip": lambda x: torch.flip(x, (0,)),
    "gather": lambda x: torch.gather(x, 0, torch.zeros(4, 4, dtype=torch.long, device=x.device)),
    "index_select": lambda x: torch.index_select(x, 0, torch.zeros(2, dtype=torch.long,
                                                                   device=x.device)),
    "pad": lambda x: F.pad(x, (1, 1)), "permute": lambda x: torch.permute(x, (1, 0)),
    "reshape": lambda x: torch.reshape(x, (16,)), "expand": lambda x: x.expand(2, 4, 4),
    "slice": lambda x: x[1:], "split": lambda x: torch.split(x, 2)[0], "diagonal": torch.diagonal,
    "tril": torch.tril, "triu": torch.triu, "topk": lambda x: torch.topk(x, 2)[0],
    "bernoulli": torch.bernoulli, "selu": F.selu, "celu": F.celu, "logsigmoid": F.logsigmoid, "glu": F.glu, "diag": torch.diag,
    "repeat_interleave": lambda x: torch.repeat_interleave(x, 2, 0),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, 3), "cumprod": lambda x: torch.cumprod(x, 0),
    "median": lambda x: torch.median(x, 0)[0], "lerp": lambda x: torch.lerp(x, x, 0.3),
}
IMAGES = {
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2), "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 1),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2), "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros(4, device=x.device),
                                         torch.ones(4, device=x.device)),
}
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
    "addcmul": lambda a, b: torch.addcmul(a, a, b), "addcdiv": lambda a, b: torch.addcdiv(a, a, b),
    "remainder": torch.remainder, "fmod": torch.fmod, "atan2": torch.atan2, "cosine_similarity": F.cosine_similarity,
    "prelu": lambda a, b: torch.prelu(a, b[0]),
    "cdist": torch.cdist,
    "maximum": torch.maximum, "minimum": torch.minimum, "pow": torch.pow,
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt,
    "ge": torch.ge, "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "where": lambda a, b: torch.where(torch.ones(4, 4, dtype=torch.bool, device=a.device), a, b),
    "cat": lambda a, b: torch.cat([a, b]), "stack": lambda a, b: torch.stack([a, b]),
    "matmul": torch.matmul, "mm": torch.mm, "linear": F.linear,
    "lstm": lstm, "gru": gru, "einsum": lambda a, b: torch.einsum("ij,jk->ik", a, b),
    "scatter_add": lambda a, b: torch.scatter_add(
        a, 0, torch.zeros(4, 4, dtype=torch.long, device=a.device), b),
    "mse_loss": F.mse_loss, "l1_loss": F.l1_loss, "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss, "kl_div": lambda a, b: F.kl_div(a, b, reduction="batchmean"),
    "binary_cross_entropy": F.binary_cross_entropy,
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
}
BINARY_IMAGES = {
    "conv2d": F.conv2d, "conv_transpose2d": F.conv_transpose2d,
    "scaled_dot_product_attention": lambda a, b: F.scaled_dot_product_attention(a, b, b),
}


def result_dtype(function, device, shape, dtypes):
    """The name of the dtype of function's result on operands of a shape."""
    operands = [torch.empty(shape, device=device, dtype=dtype) for dtype in dtypes]
    try:
        return NAMES[function(*operands).dtype]
    except RuntimeError:
        return "refused"


def record(function, shape, operands):
    """What PyTorch gives on both devices, by the operands' dtype."""
    single, half = torch.float32, torch.bfloat16
    rows = {}
    for device in ("cuda", "cpu"):
        torch.set_autocast_enabled(device, True)
        torch.set_autocast_dtype(device, half)
        rows[device] = {"f32": result_dtype(function, device, shape, [single] * operands),
                        "bf16": result_dtype(function, device, shape, [half] * operands)}
        if operands == 2:
            rows[device]["bf16 beside f32"] = result_dtype(function, device, shape, [half, single])
        torch.set_autocast_enabled(device, False)
    return rows


def main():
    matrix, image = (4, 4), (4, 4, 4, 4)
    kinds = [(UNARY, matrix, 1), (IMAGES, image, 1), (BINARY, matrix, 2), (BINARY_IMAGES, image, 2)]
    with FakeTensorMode():
        ops = {name: record(function, shape, operands)
               for functions, shape, operands in kinds for name, function in functions.items()}
    lines = [f"  {json.dumps(name)}: {json.dumps(ops[name])}" for name in sorted(ops)]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
