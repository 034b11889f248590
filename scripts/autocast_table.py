#!/usr/bin/env python3
"""Writes the table of docs/mixed-precision.md: what autocast does with each op.

Policies come from the ops' descriptors (kernels/functional/ops.def, src/autograd/ops), what
PyTorch does otherwise from tests/data/reference/autocast.json.

    autocast_table.py            fails if the document is not current
    autocast_table.py --write    brings it up to date
    autocast_table.py --self-test
"""

import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/mixed-precision.md"
BEGIN, END = "<!-- made by scripts/autocast_table.py -->\n", "<!-- end -->\n"
# The place of the policy among the arguments of a line, by macro.
POLICY_AT = {"UNARY_OP": 3, "BINARY_OP": 3, "COMPARE_OP": 1, "OP": 2}
LINE = re.compile(r"^LOCKSTEP_(UNARY_OP|BINARY_OP|COMPARE_OP|OP)\((.*)", re.MULTILINE)
# Kernels behind other ops' names, ops that no dtype concerns, and ops whose parts decide. Ops in place, which are
# not listed either, keep the dtype of what they change.
UNLISTED = {"affine", "div_scalar", "pow_scalar", "to", "argmax", "argmin", "argsort", "bernoulli", "multinomial",
            "all", "any", "bincount", "einsum", "isfinite", "isinf", "isnan", "logical_not", "nonzero", "one_hot",
            "randint", "randperm"}
POLICIES = {
    "lower_precision": "in the dtype of the scope",
    "f32": "in f32",
    "widest": "in the widest dtype among the operands",
    "follow": "in the operand's dtype",
}


def policies(*texts):
    """Policy of each op, by name."""
    found = {}
    for text in texts:
        for macro, rest in LINE.findall(text):
            arguments = [each.strip() for each in rest.split(",")]
            found[arguments[0]] = arguments[POLICY_AT[macro]].rstrip(")")
    return {name: policy for name, policy in found.items() if name not in UNLISTED and not name.endswith("_")}


def names(ops):
    return ", ".join(f"`{op}`" for op in sorted(ops))


def differing(record, wanted):
    """Ops that PyTorch's CPU treats otherwise than its GPUs, by a test of both results."""
    return [op for op, devices in record.items()
            if op not in UNLISTED and wanted(devices["cuda"], devices["cpu"])]


def table(ops, record):
    """The generated part of the document."""
    lines = ["| runs | ops |", "|---|---|"]
    for policy, runs in POLICIES.items():
        lines.append(f"| {runs} | {names(op for op, its in ops.items() if its == policy)} |")
    narrow = differing(record, lambda cuda, cpu: cuda["bf16"] == "f32" and cpu["bf16"] == "bf16")
    single = differing(record, lambda cuda, cpu: cuda["f32"] == "bf16" and cpu["f32"] == "f32")
    refused = differing(record, lambda cuda, cpu: "refused" in cuda.values())
    notes = [f"PyTorch refuses {names(refused)} under autocast on a GPU; lockstep runs it in f32.",
             f"On its CPU, PyTorch leaves these in bf16: {names(narrow)};",
             f"and these in f32: {names(single)}. lockstep treats all devices alike."]
    text = textwrap.fill(" ".join(notes), 112, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n\n" + text + "\n"


def renewed(document, generated):
    """The document with its generated part replaced."""
    before, rest = document.split(BEGIN)
    return before + BEGIN + "\n" + generated + "\n" + END + rest.split(END)[1]


def current():
    """The document as it should be."""
    sources = [ROOT / "kernels/functional/ops.def", *sorted((ROOT / "src/autograd/ops").glob("*.cpp"))]
    ops = policies(*(source.read_text() for source in sources))
    record = json.loads((ROOT / "tests/data/reference/autocast.json").read_text())
    return renewed(DOCUMENT.read_text(), table(ops, record))


def self_test():
    """Policies of planted lines, and a document that is renewed."""
    planted = ("// LOCKSTEP_OP(name, dtypes, autocast, operands)\n"
               "LOCKSTEP_UNARY_OP(exp, Exp, output, f32, -2.0, 2.0,\n    exp(x))\n"
               "LOCKSTEP_COMPARE_OP(eq, widest, a == b)\nLOCKSTEP_OP(linear, floating, lower_precision, same)\n")
    found = policies(planted)
    if found != {"exp": "f32", "eq": "widest", "linear": "lower_precision"}:
        print("self-test: policies", found)
        return False
    record = {"exp": {"cuda": {"f32": "f32", "bf16": "f32"}, "cpu": {"f32": "f32", "bf16": "bf16"}}}
    once = renewed(f"a\n{BEGIN}stale\n{END}z\n", table(found, record))
    return ("stale" not in once and "| in f32 | `exp` |" in once and once.endswith(f"{END}z\n")
            and "leaves these in bf16: `exp`" in once.replace("\n", " ")
            and renewed(once, table(found, record)) == once)


def main():
    if sys.argv[1:] == ["--self-test"]:
        return 0 if self_test() else 1
    wanted = current()
    if sys.argv[1:] == ["--write"]:
        DOCUMENT.write_text(wanted)
    elif DOCUMENT.read_text() != wanted:
        print(f"{DOCUMENT.relative_to(ROOT)} is not what the ops' descriptors say: "
              "run scripts/autocast_table.py --write")
        return 1
    print(f"{DOCUMENT.relative_to(ROOT)} is current")
    return 0


if __name__ == "__main__":
    sys.exit(main())
