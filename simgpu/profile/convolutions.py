"""Duration of cuDNN's convolutions: each as the product that it is (implicit GEMM), by the model of products.

Forward multiplies output positions x (inputs, window) with outputs; the input's gradient input positions x (outputs, window)
with inputs; the weight's gradient outputs x positions with (inputs, window). FLOPs are those of the record.
"""

import math

from prediction import BANDWIDTH, PRODUCTS, within
from products import PROLOGUE, TILES, padded_work
from records import DTYPE_BYTES

# Channels that a kernel for tensor cores takes at once; with others cuDNN pads arrays and takes an old kernel, at this
# share of the rate.
CHANNELS, UNALIGNED = 8, 0.4
ERROR = 0.5


def implicit_product(record):
    """(m, n, k) of the product that a pass is."""
    shape = record["shape"]
    outputs, inputs, *window = shape["weight"]
    taps = math.prod(window)
    positions, results = (extent[0] * math.prod(extent[2:]) for extent in (shape["image"], shape["result"]))
    return {"forward": (results, outputs, inputs * taps), "input": (positions, inputs, outputs * taps),
            "weight": (outputs, inputs * taps, results)}[record["pass"]]


def work_of(device, record):
    """Factor over the least time of its FLOPs, by tiles and by channels; 1 where the shape is not known."""
    if not record["shape"]:
        return 1.0
    m, n, k = implicit_product(record)
    inputs = record["shape"]["weight"][1]
    padded = -(-inputs // CHANNELS) * CHANNELS / inputs
    aligned = 1.0 if padded == 1 else padded / UNALIGNED
    work = min(padded_work(device.sms, m, n, k, 1, tile) for tile in TILES)
    return work * (1 + PROLOGUE / k) * aligned


def touched_bytes(record):
    """Bytes, less what a window smaller than its stride does not read of the image."""
    size = record["read_distinct"] + record["write_distinct"]
    if not record["shape"] or record["pass"] == "input":
        return size
    image, weight, result = (record["shape"][part] for part in ("image", "weight", "result"))
    read = math.prod(min(1.0, window * after / before) for window, after, before in zip(weight[2:], result[2:], image[2:]))
    return size - (1 - read) * math.prod(image) * DTYPE_BYTES[record["dtype"]]


def predict(device, record):
    """The Prediction of a convolution."""
    size, dtype = touched_bytes(record), record["dtype"]
    peak = device.peak(dtype, "tf32" if dtype == "f32" else "f32")
    arithmetic = record["flops"] * work_of(device, record) / (device.convolution_efficiency * peak)
    memory = size / (device.dram_efficiency * device.dram_bandwidth)
    expected = (device.product_floor_s + max(arithmetic, memory)) * 1e6
    return within(expected, ERROR, PRODUCTS if arithmetic > memory else BANDWIDTH, bytes=size, flops=record["flops"])
