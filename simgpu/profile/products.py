"""Duration of cuBLASLt's products and cuDNN's norms.

What the simulated GPU runs in their place says nothing of their speed, so they are predicted by shape.

Products: t0 + max(F pad / (e P) (ceil(w) / w)^0.25 (1 + 64 / K), bytes / (0.85 W)), the best of a few tiles, with
w waves of blocks, pad the padded over the real area. The exponent is small since libraries split K and choose
among many tiles; `e` and `t0` of a device are fitted (sim_profile.py trust --fit).

What an epilogue reads or writes beside the result (GELU's input, a residual) is not hidden behind the product; the
gradient of a bias is a kernel of its own, which reads the gradient once more.
"""

import dataclasses
import math

from prediction import BANDWIDTH, LATENCY, PRODUCTS, within
from records import DTYPE_BYTES

# Rows, columns, and what the tile reaches of the rate of the largest.
TILES = ((128, 256, 1.0), (256, 128, 1.0), (192, 192, 1.0), (128, 128, 0.92), (64, 128, 0.75), (128, 64, 0.75), (64, 64, 0.55))
TAIL_EXPONENT = 0.25
PROLOGUE = 64
# Part of a sum that is deep enough for a tile of its own (split-K).
SPLIT = 8192
ALIGNMENT = 16
# An H100 made 273 TF with an inner dimension of 10922, 398 with 10944 (stas00/ml-engineering).
MISALIGNED = 0.69
# The floor is fitted on calls one by one; in a graph a small product may begin before the one before it has ended.
LEAST_FLOOR = 0.4
# What cuBLASLt's kernel for gradients of biases reaches of DRAM's rate (globalKernelBgradAB_v2 on an H100).
BIAS_GRADIENT_EFFICIENCY = 0.63
PRODUCT_ERROR, NORM_ERROR = 0.12, 0.25


def misaligned(record):
    """Which of an operand's "widths" (what follows one another in memory) and "leading" dimensions are no multiple
    of 16 bytes, which cuBLAS wants both to be ("Tensor Core Usage" in its guide). Of records that have no layouts: "sides",
    any of m, n and k."""
    if "leading" not in record:
        size = DTYPE_BYTES[record["a"]]
        return {"sides"} if any(record[side] * size % ALIGNMENT for side in "mnk" if record[side] > 1) else set()
    sizes = [DTYPE_BYTES[record[operand]] for operand in "abcd"]
    return {what for what in ("widths", "leading")
            if any(extent * size % ALIGNMENT for extent, size in zip(record[what], sizes) if extent > 1)}


def padded_work(sms, m, n, k, batch, tile):
    """Factor over the least time of a product that a tile costs: padding, last wave, its own rate. A deep sum is split
    where the tiles do not fill the device."""
    rows, columns, rate = tile
    blocks = math.ceil(m / rows) * math.ceil(n / columns) * batch
    waves = blocks * max(1, min(sms // blocks, k // SPLIT)) / sms
    padding = math.ceil(m / rows) * rows * math.ceil(n / columns) * columns / (m * n)
    return padding * (math.ceil(waves) / waves) ** TAIL_EXPONENT / rate


def shape_bytes(record):
    """Bytes of both operands and the result, from the shape."""
    m, n, k = record["m"], record["n"], record["k"]
    return record["batch"] * (m * k * DTYPE_BYTES[record["a"]] + k * n * DTYPE_BYTES[record["b"]]
                              + m * n * DTYPE_BYTES[record["d"]])


def operand_bytes(record):
    """Bytes that a product touches, counted or from the shape."""
    return record.get("read_distinct", 0) + record.get("write_distinct", 0) or shape_bytes(record)


def epilogue_seconds(device, record):
    """What an epilogue takes after the product: what it touches beside the operands, and a gradient of a bias."""
    rate = device.dram_efficiency * device.dram_bandwidth
    beside = max(0, operand_bytes(record) - shape_bytes(record)) / rate
    if "bias_gradient" not in record.get("epilogue", ""):
        return beside
    gradient = record["k"] * record["n"] * DTYPE_BYTES[record["b"]]
    return beside + device.kernel_floor_s + gradient / (BIAS_GRADIENT_EFFICIENCY * device.dram_bandwidth)


def predict_product(device, record):
    """The Prediction of a matrix product."""
    m, n, k, batch = record["m"], record["n"], record["k"], record.get("batch", 1)
    flops = 2.0 * m * n * k * batch
    dtype, compute = record["a"], record.get("compute", "f32")
    vector_units = dtype == "f32" and compute == "f32"
    peak = device.peak(dtype, compute)
    efficiency = device.product_efficiency_f32 if vector_units else device.product_efficiency
    work = min(padded_work(device.sms, m, n, k, batch, tile) for tile in TILES)
    aligned = flops * work * (1 + PROLOGUE / k) / (efficiency * peak)
    off = set() if vector_units else misaligned(record)
    arithmetic = aligned / MISALIGNED if off else aligned
    size, after = operand_bytes(record), epilogue_seconds(device, record)
    memory = min(size, shape_bytes(record)) / (device.dram_efficiency * device.dram_bandwidth)
    # Kernels that load by TMA need no more than lines that begin at such multiples.
    seconds, least = max(arithmetic, memory), max(arithmetic if "leading" in off else aligned, memory)
    found = within((device.product_floor_s + seconds + after) * 1e6, PRODUCT_ERROR, bound_of(device, arithmetic, memory),
                   bytes=size, flops=flops)
    low = (LEAST_FLOOR * device.product_floor_s + least + after) * 1e6 / (1 + PRODUCT_ERROR)
    return dataclasses.replace(found, low=low)


def bound_of(device, arithmetic, memory):
    if max(arithmetic, memory) < device.product_floor_s:
        return LATENCY
    return PRODUCTS if arithmetic > memory else BANDWIDTH


def predict_norm(device, record):
    """The Prediction of another plan of cuDNN, such as a norm: bytes at the rate that its norms reach."""
    size = record["read_distinct"] + record["write_distinct"]
    seconds = size / (device.norm_efficiency * device.dram_bandwidth)
    bound = BANDWIDTH if seconds > device.norm_floor_s else LATENCY
    return within((device.norm_floor_s + seconds) * 1e6, NORM_ERROR, bound, bytes=size)
