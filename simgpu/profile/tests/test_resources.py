"""Registers and spills from ptxas, and how kernels of two compilers are found in each other."""

import unittest

import resources
from records import Recorder

SAID = """
ptxas info    : Compiling entry function '_ZN1a45_GLOBAL__N__a5eb56e6_12_embedding_cu_9b08f86a3runIfEEvPT_' for 'sm_90'
ptxas info    : Function properties for _ZN1a45_GLOBAL__N__a5eb56e6_12_embedding_cu_9b08f86a3runIfEEvPT_
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 16 bytes cumulative stack size
ptxas info    : Compiling entry function '_ZN1a4fillEPj' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 4224 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function '_ZN1a4copyIfEEvNS_5TableIT_EE' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 20 registers
"""


class Resources(unittest.TestCase):
    def test_ptxas_says_registers_spills_and_shared_memory(self):
        kernels = resources.parse(SAID)
        self.assertEqual(kernels["_ZN1a12_GLOBAL__N_13runIfEEvPT_"], {"registers": 40, "spills": 12, "static_shared": 0})
        self.assertEqual(kernels["_ZN1a4fillEPj"], {"registers": 12, "spills": 0, "static_shared": 4224})

    def test_kernels_are_found_by_symbol_and_else_by_template(self):
        recorder = Recorder()
        for symbol in ("_ZN1a12_GLOBAL__N_13runIfEEvPT_", "_ZN1aL4fillEPj", "_ZN1a4copyIfEEvRKNS_5TableIT_EE",
                       "_ZN1a5otherEv"):
            recorder.add("kernel", symbol=symbol)
        profile = recorder.profile()
        self.assertEqual(resources.join(profile, resources.parse(SAID)), (3, 4))
        self.assertEqual([record.get("registers") for record in profile.records], [40, 12, 20, None])

    def test_a_compilation_is_asked_for_ptxas_alone(self):
        words = ["nvcc", "-O1", "-DNDEBUG", "-Ofc", "mid", "--generate-code=arch=compute_80,code=sm_80", "-x", "cu", "-c",
                 "a.cu", "-o", "a.o"]
        self.assertEqual(resources.command_of(words, "sm_90"),
                         ["nvcc", "-DNDEBUG", "-x", "cu", "a.cu", "-O3", "-gencode=arch=compute_90,code=sm_90", "-cubin",
                          "-Xptxas=-v", "-o", "/dev/null"])


if __name__ == "__main__":
    unittest.main()
