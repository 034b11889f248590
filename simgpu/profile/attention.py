"""Duration of cuDNN's attention, from published rates over sequence length, head width, mask and pass.

Between the points of a table the time a FLOP is linear in 1 / keys: a fixed cost a block and one a key. FLOPs are
counted from the shape, half of them under a causal mask, backward 2.5 of forward.
"""

import math

from prediction import BANDWIDTH, PRODUCTS, within

BACKWARD_FLOPS = 2.5
# Rows of queries that a block takes.
QUERY_TILE = 128
TAIL_EXPONENT = 0.25
# GB200, cuDNN: 13 to 16 % (NVIDIA/cudnn-frontend).
DETERMINISTIC_BACKWARD = 1.15
ERRORS = {"H": 0.10, "M": 0.12, "L": 0.25, "E": 0.25}


def flops_of(record):
    """FLOPs of a call by its shape."""
    pairs = record["queries"] * record["keys"] * (0.5 if record["causal"] else 1.0)
    once = 4.0 * record["batch"] * record["heads"] * pairs * record["width"]
    return once * (BACKWARD_FLOPS if record["backward"] else 1.0)


def rate_at(points, keys):
    """FLOP/s of a table at a number of keys."""
    inverse = [(1.0 / at, 1.0 / rate) for at, rate in sorted(points, reverse=True)]
    if len(inverse) == 1 or 1.0 / keys <= inverse[0][0]:
        return 1e12 / inverse[0][1]
    for left, right in zip(inverse, inverse[1:]):
        if 1.0 / keys <= right[0] or right is inverse[-1]:
            slope = (right[1] - left[1]) / (right[0] - left[0])
            return 1e12 / (left[1] + slope * (1.0 / keys - left[0]))
    raise AssertionError("unreachable")


def tables_of(device, causal, backward):
    """Tables of a pass by width. Without a mask, where there are none, those with one."""
    found = [table for table in device.attention if table["backward"] == backward and table["causal"] == causal]
    return found or [table for table in device.attention if table["backward"] == backward and table["causal"]]


def rate_of(device, record):
    """(FLOP/s, confidence) of a call: between widths by the width's logarithm, outside by its root."""
    tables = sorted(tables_of(device, record["causal"], record["backward"]), key=lambda table: table["width"])
    rates = [(table["width"], rate_at(table["teraflops_by_keys"], record["keys"]), table["confidence"])
             for table in tables]
    width = record["width"]
    if width <= rates[0][0]:
        return rates[0][1] * math.sqrt(width / rates[0][0]), rates[0][2]
    for (low, slow, _), (high, fast, confidence) in zip(rates, rates[1:]):
        if width <= high:
            share = math.log(width / low) / math.log(high / low)
            return slow + (fast - slow) * share, confidence
    return rates[-1][1], rates[-1][2]


def few_blocks(device, record):
    """Factor of a device that the blocks do not fill."""
    waves = record["batch"] * record["heads"] * math.ceil(record["queries"] / QUERY_TILE) / device.sms
    return (math.ceil(waves) / waves) ** TAIL_EXPONENT


def predict(device, record):
    """The Prediction of a call of attention."""
    flops, (rate, confidence) = flops_of(record), rate_of(device, record)
    seconds = flops / rate * few_blocks(device, record)
    if record["backward"] and record.get("deterministic"):
        seconds *= DETERMINISTIC_BACKWARD
    if record["dtype"] == "f32":
        seconds *= device.peak_bf16 / device.peak_tf32
    size = record["read_distinct"] + record["write_distinct"]
    memory = size / (device.dram_efficiency * device.dram_bandwidth)
    expected = (device.norm_floor_s + max(seconds, memory)) * 1e6
    return within(expected, ERRORS[confidence], PRODUCTS if seconds > memory else BANDWIDTH, bytes=size,
                  flops=flops)
