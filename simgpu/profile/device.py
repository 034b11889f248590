"""What is known of a device: devices/*.json, where each number stands with its source and confidence.

A number is [value, source, confidence]; confidence as in docs/performance-gpu.md: H read in a primary
source or a raw measurement, M one secondary source or digits read off a figure, L weak, E estimated.
Units are those of the name's end, else bytes, operations and bytes a second.
"""

import functools
import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent / "devices"
SHARED_FILES = {"host", "nccl"}


class Device:
    """One GPU's numbers. `changes` replaces values, to describe a card that differs in a few."""

    def __init__(self, key, description, changes=None):
        self.key = key
        self.name = description["name"]
        self.architecture = description["nccl_architecture"]
        self.attention = description["attention"]
        self.not_known = description["not_known"]
        self.numbers = dict(description["numbers"])
        for name, value in (changes or {}).items():
            if name not in self.numbers:
                raise ValueError(f"device {key} has no number '{name}': it has "
                                 f"{', '.join(sorted(self.numbers))}")
            self.numbers[name] = [value, "changed by the caller", "E"]

    def __getattr__(self, name):
        numbers = self.__dict__.get("numbers", {})
        if name in numbers:
            return numbers[name][0]
        raise AttributeError(f"a device has no number '{name}'")

    def confidence(self, name):
        return self.numbers[name][2]

    def peak(self, dtype, compute="f32"):
        """Operations a second of products of a type: tensor cores but for f32 kept as f32."""
        if dtype == "f32" and compute == "tf32":
            return self.peak_tf32
        name = f"peak_{dtype}"
        if name not in self.numbers:
            raise ValueError(f"{self.name} has no rate for products of '{dtype}'")
        return self.numbers[name][0]


def names():
    """The keys of all devices: "a100", "b200", ..."""
    return sorted(path.stem for path in FOLDER.glob("*.json") if path.stem not in SHARED_FILES)


def load(key, changes=None):
    """The device of that key."""
    if key not in names():
        raise ValueError(f"no device '{key}': there are {', '.join(names())}")
    return Device(key, read(key), changes)


@functools.lru_cache(maxsize=None)
def read(name):
    """A file of devices/, parsed; not to be changed."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def host_costs():
    """What calls take on the host, and gaps on the device: (low, expected, high) in microseconds."""
    costs = read("host")
    return ({name: entry[0] for name, entry in costs["calls"].items()},
            {name: entry[0] for name, entry in costs["device"].items()})
