"""Duration of library calls that multiply: cuBLASLt's products and cuDNN's convolutions and norms.

What the simulated GPU runs in their place says nothing of their speed, so they are predicted by shape.

Products: t0 + max(F pad / (e P) (ceil(w) / w)^0.25 (1 + 64 / K), bytes / (0.85 W)), the best of a few tiles, with
w waves of blocks, pad the padded over the real area. The exponent is small since libraries split K and choose
among many tiles; `e` and `t0` of a device are fitted (sim_profile.py trust --fit).
"""

import dataclasses
import math

from prediction import BANDWIDTH, LATENCY, PRODUCTS, within
from records import DTYPE_BYTES

# Rows, columns, and what the tile reaches of the rate of the largest.
TILES = ((128, 256, 1.0), (256, 128, 1.0), (128, 128, 0.92), (64, 128, 0.75), (128, 64, 0.75), (64, 64, 0.55))
TAIL_EXPONENT = 0.25
PROLOGUE = 64
ALIGNMENT = 16
# An H100 made 273 TF with an inner dimension of 10922, 398 with 10944 (stas00/ml-engineering).
MISALIGNED = 0.69
# The floor is fitted on calls one by one; in a graph a small product may begin before the one before it has ended.
LEAST_FLOOR = 0.4
PRODUCT_ERROR, CONVOLUTION_ERROR, NORM_ERROR = 0.12, 0.5, 0.25


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


def padded_work(sms, m, n, batch, tile):
    """Factor over the least time of a product that a tile costs: padding, last wave, its own rate."""
    rows, columns, rate = tile
    blocks = math.ceil(m / rows) * math.ceil(n / columns) * batch
    waves = blocks / sms
    padding = math.ceil(m / rows) * rows * math.ceil(n / columns) * columns / (m * n)
    return padding * (math.ceil(waves) / waves) ** TAIL_EXPONENT / rate


def operand_bytes(record):
    """Bytes of operands and result, counted or from the shape."""
    counted = record.get("read_distinct", 0) + record.get("write_distinct", 0)
    if counted:
        return counted
    m, n, k = record["m"], record["n"], record["k"]
    return record["batch"] * (m * k * DTYPE_BYTES[record["a"]] + k * n * DTYPE_BYTES[record["b"]]
                              + m * n * DTYPE_BYTES[record["d"]])


def predict_product(device, record):
    """The Prediction of a matrix product."""
    m, n, k, batch = record["m"], record["n"], record["k"], record.get("batch", 1)
    flops = 2.0 * m * n * k * batch
    dtype, compute = record["a"], record.get("compute", "f32")
    vector_units = dtype == "f32" and compute == "f32"
    peak = device.peak(dtype, compute)
    efficiency = device.product_efficiency_f32 if vector_units else device.product_efficiency
    work = min(padded_work(device.sms, m, n, batch, tile) for tile in TILES)
    aligned = flops * work * (1 + PROLOGUE / k) / (efficiency * peak)
    off = set() if vector_units else misaligned(record)
    arithmetic = aligned / MISALIGNED if off else aligned
    size = operand_bytes(record)
    memory = size / (device.dram_efficiency * device.dram_bandwidth)
    # Kernels that load by TMA need no more than lines that begin at such multiples.
    seconds, least = max(arithmetic, memory), max(arithmetic if "leading" in off else aligned, memory)
    found = within((device.product_floor_s + seconds) * 1e6, PRODUCT_ERROR, bound_of(device, arithmetic, memory),
                   bytes=size, flops=flops)
    return dataclasses.replace(found, low=(LEAST_FLOOR * device.product_floor_s + least) * 1e6 / (1 + PRODUCT_ERROR))


def bound_of(device, arithmetic, memory):
    if max(arithmetic, memory) < device.product_floor_s:
        return LATENCY
    return PRODUCTS if arithmetic > memory else BANDWIDTH


def predict_convolution(device, record):
    """The Prediction of a convolution: rough. No table of cuDNN's rates by shape went into it."""
    size = record["read_distinct"] + record["write_distinct"]
    dtype = record["dtype"]
    peak = device.peak(dtype, "tf32" if dtype == "f32" else "f32")
    arithmetic = record["flops"] / (device.convolution_efficiency * peak)
    memory = size / (device.dram_efficiency * device.dram_bandwidth)
    expected = (device.product_floor_s + max(arithmetic, memory)) * 1e6
    return within(expected, CONVOLUTION_ERROR, PRODUCTS if arithmetic > memory else BANDWIDTH, bytes=size,
                  flops=record["flops"])


def predict_norm(device, record):
    """The Prediction of another plan of cuDNN, such as a norm: bytes at the rate that its norms reach."""
    size = record["read_distinct"] + record["write_distinct"]
    seconds = size / (device.norm_efficiency * device.dram_bandwidth)
    bound = BANDWIDTH if seconds > device.norm_floor_s else LATENCY
    return within((device.norm_floor_s + seconds) * 1e6, NORM_ERROR, bound, bytes=size)
