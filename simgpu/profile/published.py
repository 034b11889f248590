"""Published measurements (trust.json) and lockstep's own (measured.json), and what the model predicts for each."""

import dataclasses
import functools
import itertools
import json
import pathlib

import device as devices
import job
import measured
import network
import scale
from model import Model
from programs import gpt2, mpt, qwen2, resnet50
from records import DTYPE_BYTES, Recorder

FILE = pathlib.Path(__file__).resolve().parent / "trust.json"


@dataclasses.dataclass(frozen=True)
class Point:
    """One published figure. `why` says what it has that the model leaves out, where it is known.
    `fitted_on` is None of sums over points of both halves."""
    series: dict
    at: float
    published: float
    fitted_on: object
    why: str

    @property
    def name(self):
        return f"{self.series['id']}, {self.series['vary']} {self.at:g}" if self.at else self.series["id"]


def points():
    """All points, with the half that they belong to: the rule stands in trust.json."""
    found, singles = [], {}
    for series in read()["series"]:
        alone = len(series["points"]) == 1
        counter = singles.setdefault((series["group"], series["device"]), itertools.count()) if alone \
            else itertools.count()
        for at, published in series["points"]:
            found.append(Point(series, at, published, next(counter) % 2 == 0,
                               series.get("why", {}).get(str(at), "")))
    reasons = read()["reasons of lockstep's rows"]
    return found + [Point(series, 0, value, half, measured.reason(series["id"], reasons))
                    for series, value, half in measured.series()]


@functools.lru_cache(maxsize=None)
def read():
    return json.loads(FILE.read_text())


def record_of(point):
    """The record that a point of products, attention, norms or elementwise kernels is about."""
    given, at, recorder = point.series["record"], point.at, Recorder()
    kind = given["kind"]
    if "us" in given:
        return given
    if kind == "product":
        sides = {"m": {"m": at}, "n and k": {"n": at, "k": at}}[point.series["vary"]]
        shape = {**{side: given.get(side) for side in "mnk"}, **sides}
        recorder.product(**shape, dtype=given["dtype"])
    elif kind == "attention":
        batch = max(1, given["tokens"] // at)
        recorder.attention(batch, given["heads"], at, given["width"], given["backward"], given["kv_heads"],
                           given["causal"])
    elif kind == "cudnn":
        size = at * DTYPE_BYTES["bf16"]
        recorder.add("cudnn", read_distinct=given["reads"] * size, write_distinct=given["writes"] * size, flops=0)
    else:
        parts = given["reads"] + given["writes"]
        size = int(at) // (parts if point.series["vary"] == "bytes in all" else 1)
        known = {"resident": given["resident"]} if "resident" in given else {}
        recorder.elementwise("kernel", given["reads"] * size, given["writes"] * size, **known)
    return recorder.records[0]


def step_microseconds(point, device):
    """Whole steps: a program's kernel list through model and timeline."""
    given = dict(point.series["record"])
    program = given.pop("program")
    if program == "qwen2":
        parts = qwen2.parts(**given)
    elif program == "gpt2":
        shape = gpt2.SMALL if given.pop("size") == "small" else gpt2.XL
        parts = [(gpt2.step(**shape, **given), 1)]
    else:
        parts = [(resnet50.step(**given), 1)]
    return sum(times * job.time_of(recorder, device) for recorder, times in parts)


@functools.lru_cache(maxsize=None)
def time_of_ranks(key, changes, size, batch, kept, ranks):
    """Microseconds of a step of MPT on so many ranks, without those that come late."""
    device = devices.load(key, dict(changes))
    return job.time_of(mpt.step(size=size, batch=batch, ranks=ranks, kept=kept), device, nodes_of(ranks))


def nodes_of(ranks):
    return max(1, ranks // 8)


def growth(point, shares=None):
    """How many times longer the step of a point is predicted to take than the first of its series."""
    given = point.series["record"]
    key = (point.series["device"], tuple(point.series.get("changes", {}).items()), given["size"], given["batch"],
           given["kept"])
    first, ranks = point.series["reference"][0], point.at
    late = (1 + scale.straggling(nodes_of(ranks), "expected", shares)) / (
        1 + scale.straggling(nodes_of(first), "expected", shares))
    return time_of_ranks(*key, ranks) / time_of_ranks(*key, first) * late


def microseconds(point, device=None):
    """The predicted time of a point; of one that is about growth with ranks, from the first of its series."""
    if "reference" in point.series:
        return step_of_tokens(point.series["reference"][1], point) * growth(point)
    device = device or devices.load(point.series["device"], point.series.get("changes"))
    given = point.series["record"]
    if "program" in given:
        return step_microseconds(point, device)
    if "rows" in given or "us" in given:
        model = Model(device)
        return sum(row["times"] * model.predict(row).expected for row in given["rows"]) if "rows" in given \
            else model.predict(given).expected
    if given["kind"] == "collective":
        group = network.Group(given["ranks"], given["nodes"], given["efa"])
        return network.choose(device, given["op"], point.at, group).microseconds
    return Model(device, alone=True).predict(record_of(point)).expected


def step_of_tokens(rate, point):
    """Microseconds of a step at a rate of tokens a second and rank."""
    return point.series["record"]["batch"] * mpt.LENGTH / rate * 1e6


def published_microseconds(point, device=None):
    """The published time, from whatever unit it is in."""
    device = device or devices.load(point.series["device"], point.series.get("changes"))
    value, unit = point.published, point.series["unit"]
    if unit == "us":
        return value
    if unit == "ms":
        return value * 1e3
    if unit == "tokens/s a GPU":
        return step_of_tokens(value, point)
    if unit == "bus GB/s":
        given = point.series["record"]
        factor = (2 if given["op"] == "AllReduce" else 1) * (given["ranks"] - 1) / given["ranks"]
        return point.at * factor / value / 1e3
    record = record_of(point)
    if unit == "TF":
        return record["flops"] / value / 1e6
    return (record["read_distinct"] + record["write_distinct"]) / (value * device.dram_bandwidth) * 1e6
