#!/usr/bin/env python3
"""Fails where a kernel spills registers, compiled for sm_90 as a release is.

  spills.py BUILD [--files FILE.cu...]
  spills.py --self-test

BUILD has LOCKSTEP_CUDA=ON (any flags: its commands are run anew for ptxas alone, at full optimisation). Without --files all .cu
files are compiled, some 140 s of processor time."""

import argparse
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "simgpu/profile"))
import resources

# Kernels that may spill, by their names without namespaces, and why. No step of GPT-2 launches one of them.
EXCEPTIONS = [
    (r"_kernel<(.*, )?double\b", "f64, for gradients against differences"),
    (
        r"\b(norm|norm_backward|softmax|softmax_backward)_kernel<",
        "rows that are too long to be kept, or odd: up to 24 bytes, by which ptxas gains warps (bounds that forbid it take up to twice the "
        "registers)",
    ),
    (r"\bcross_entropy_gradient_kernel<WideGroup<BlockGroup, 1>", "rows of an odd number of classes: 12 bytes, at 32 registers, for 2,048 threads"),
    (r"\bnorm_backward_one_pass_kernel<WideGroup<BlockGroup, 4>, true, float, (BFloat16|Half), NoByproducts>", "rows of more than 768 in f32: 4 bytes, at 168 registers"),
    (r"\bcompact_update_kernel<RMSpropRule\b", "RMSprop with a compact state"),
]


def readable(symbols):
    """Names of kernels with their template arguments, without namespaces and parameters."""
    if not symbols:
        return []
    done = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True)
    names = [re.sub(r"\(anonymous namespace\)::", "", line).partition("(")[0] for line in done.stdout.splitlines()]
    return [re.sub(r"\b\w+::", "", name).removeprefix("void ") for name in names]


def unexpected(kernels):
    """[(name, its registers and spills)] of kernels that spill and are no exceptions."""
    spilling = [symbol for symbol in sorted(kernels) if kernels[symbol]["spills"]]
    return [
        (name, kernels[symbol])
        for symbol, name in zip(spilling, readable(spilling))
        if not any(re.search(pattern, name) for pattern, _ in EXCEPTIONS)
    ]


def check(build, names):
    kernels = resources.compile(build, names=names)
    spilling = unexpected(kernels)
    for name, of in spilling:
        print(f"{name}: {of['spills']} bytes of spills at {of['registers']} registers")
    if spilling:
        print(f"spills: {len(spilling)} of {len(kernels)} kernels; give them less to hold, or other __launch_bounds__")
        return 1
    excepted = sum(of["spills"] > 0 for of in kernels.values())
    print(f"spills: none in {len(kernels) - excepted} kernels; {excepted} are exceptions")
    return 0


class SelfTest(unittest.TestCase):
    KERNELS = {
        "_ZN8lockstep12cuda_kernels12_GLOBAL__N_120norm_one_read_kernelINS0_9WideGroupINS0_9WarpGroupELi4EEELb1EffEEvll": 0,
        "_ZN8lockstep12cuda_kernels12_GLOBAL__N_111norm_kernelINS0_9WideGroupINS0_9WarpGroupELi4EEELb0EffEEvll": 8,
        "_ZN8lockstep12cuda_kernels12_GLOBAL__N_120probabilities_kernelINS0_9WarpGroupEdEEvll": 64,
    }

    def unexpected(self, **more):
        kernels = {symbol: {"spills": spills, "registers": 64} for symbol, spills in {**self.KERNELS, **more}.items()}
        return [name for name, _ in unexpected(kernels)]

    def test_exceptions_may_spill(self):
        self.assertEqual(self.unexpected(), [])

    def test_others_are_named(self):
        self.assertEqual(
            self.unexpected(**{symbol: 4 for symbol in self.KERNELS}),
            ["norm_one_read_kernel<WideGroup<WarpGroup, 4>, true, float, float>"],
        )
        self.assertEqual(self.unexpected(_ZN1a4fillEPj=4), ["fill"])


def main():
    if sys.argv[1:2] == ["--self-test"]:
        return unittest.main(argv=sys.argv[:1] + sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--files", nargs="+", default=[])
    arguments = parser.parse_args()
    try:
        return check(arguments.build, arguments.files)
    except ValueError as error:
        print(f"spills: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
