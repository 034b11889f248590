"""What steps of lockstep took on a GPU, kernel by kernel: measured.json, which scripts/gpu/measured_rows.py writes.

Of each kind every second name, in order of the alphabet and beginning with the first, is for fitting, with all rows of
that name in all steps; the others are held out. Whole steps are sums over rows of both halves.
"""

import functools
import json
import pathlib

FILE = pathlib.Path(__file__).resolve().parent / "measured.json"
GROUPS = {"product": "products of lockstep", "attention": "attention of lockstep", "kernel": "kernels of lockstep",
          "convolution": "convolutions of lockstep"}
STEPS = "steps of lockstep"
# Below this a kernel is what a launch costs, and its own work is lost in it.
SMALL_US, SMALL_KERNELS = 10.0, "small kernels of lockstep"


@functools.lru_cache(maxsize=None)
def read():
    return json.loads(FILE.read_text())


def names_for_fitting():
    """{(kind, name)}."""
    names = {}
    for row in read()["rows"]:
        names.setdefault(row["kind"], set()).add(row["name"])
    return {(kind, name) for kind, found in names.items() for name in sorted(found)[::2]}


def group_of(row):
    return SMALL_KERNELS if row["kind"] == "kernel" and row["us"] < SMALL_US else GROUPS[row["kind"]]


def series():
    """[(series as in trust.json, microseconds, whether for fitting)]: of rows, then of steps (None: of both halves)."""
    found, fitted = [], names_for_fitting()
    for number, row in enumerate(read()["rows"]):
        name = f"{row['name']}, {row['step']}"
        found.append(({"id": name, "group": group_of(row), "device": read()["device"], "record": {**row, "id": number},
                       "vary": "", "unit": "us", "source": read()["source"]}, row["us"], (row["kind"], row["name"]) in fitted))
    for step in sorted({row["step"] for row in read()["rows"]}):
        rows = [{**row, "id": number} for number, row in enumerate(read()["rows"]) if row["step"] == step]
        found.append(({"id": step, "group": STEPS, "device": read()["device"], "record": {"rows": rows}, "vary": "",
                       "unit": "us", "source": read()["source"]}, sum(row["times"] * row["us"] for row in rows), None))
    return found


def reason(name, reasons):
    """What is known of a miss, by how the row's name begins."""
    return next((why for begin, why in reasons.items() if name.startswith(begin)), "")
