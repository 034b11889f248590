"""The stages that need programs which only a machine with a GPU has: what these would write is written by stand-ins."""

import gzip
import json
import os
import unittest
from unittest import mock

from .test_check import Case, gpu_tests, kernel_comparison, measured_rows, sanitizer, step_kernels, steps, summary

OWN = "void lockstep::cuda_kernels::{}(lockstep::Layout<2>, int)"


def profile_of_steps():
    """Three steps of two kernels and a product."""
    recorder = kernel_comparison.records.Recorder()
    for _ in range(3):
        recorder.add("mark", "step")
        recorder.elementwise("gelu_kernel (a.cu:3)", 1 << 20, 1 << 20)
        recorder.product(768, 1024, 768)
        recorder.elementwise("norm_kernel (b.cu:9)", 1 << 20, 1 << 20)
    return recorder


def times_of_steps():
    one = [(OWN.format("gelu_kernel"), 3.0), ("nvjet_hsh", 6.0), ("void cublasLt::splitKreduce_kernel<32>(int)", 1.0), (OWN.format("norm_kernel"), 5.0)]
    return [{"kind": "kernel", "name": name, "us": us} for name, us in one * 3]


class OnAGpu(Case):
    """With an H100 that is not there."""

    def setUp(self):
        super().setUp()
        self.check.gpus, self.check.memory, self.check.quick = ["NVIDIA H100 80GB HBM3, 79 GiB free of 79 GiB"], 79 << 30, False
        environment = mock.patch.dict(os.environ, {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"})
        environment.start()
        self.addCleanup(environment.stop)
        self.check.place.environment["PATH"] = os.environ["PATH"]

    def found(self, stage, **wanted):
        return [line for line in self.results.of(stage) if all(line.get(key) == value for key, value in wanted.items())]

    def record_steps(self):
        (self.folder / "profiles").mkdir()
        (self.folder / "lib").mkdir()
        (self.folder / "lib" / step_kernels.LIBRARY).touch()
        for name in ("gpt2-bf16-64", "gpt2-autocast-64", "resnet50-autocast-256", "vit-autocast-256"):
            with gzip.open(self.folder / "profiles" / f"{name}.jsonl.gz", "wt") as file:
                file.write("\n".join(profile_of_steps().lines()))
        (self.folder / "times").write_text("\n".join(json.dumps(line) for line in times_of_steps()))
        self.write("benchmark_model_step", f'#!/bin/sh\ncp {self.folder}/times "$KERNEL_TIMES"\n')

    def test_kernels_stand_beside_what_is_predicted(self):
        self.record_steps()
        step_kernels.compare(self.check)
        lines = self.found("kernels", model="resnet50", kind="kernel")
        self.assertEqual([(line["what"], line["measured_us"]) for line in lines], [("norm_kernel", 5.0), ("gelu_kernel", 3.0)])
        self.assertEqual(self.found("kernels", model="gpt2", what="all")[0]["measured_us"], 15.0)
        self.assertEqual(self.check.failures, [])
        text = summary.text(self.check)
        self.assertTrue(any("predicted" in line and "h100" in line for line in text))
        self.assertIn("    of it separate helper kernels of libraries 0.001 ms: 0.001 ms splitKreduce_kernel", text)

    def test_losses_that_are_not_the_cpus_fail(self):
        self.write("benchmark_model_step", "#!/bin/sh\nfor l in 7 6 5; do echo '{\"ms\": 1, \"loss\": '$l'}'; done\n")
        steps.twins(self.check)
        self.assertEqual(self.check.failures, [])
        self.write("benchmark_model_step", "#!/bin/sh\ncase \"$*\" in *cuda*) first=7.1 ;; *) first=7 ;; esac\n"
                   "for l in $first 6 5; do echo '{\"ms\": 1, \"loss\": '$l'}'; done\n")
        steps.twins(self.check)
        self.assertEqual(len(self.check.failures), len(steps.TWINS))

    def test_a_small_step_stands_beside_its_kernels(self):
        self.record_steps()
        one = [(OWN.format("norm_kernel"), 3.0), (OWN.format("update_kernel"), 2.0)]
        (self.folder / "times").write_text("\n".join(json.dumps({"kind": "kernel", "name": name, "us": us}) for name, us in one * 3))
        self.write("benchmark_model_step", f'#!/bin/sh\n[ -z "$KERNEL_TIMES" ] || cp {self.folder}/times "$KERNEL_TIMES"\n'
                   "echo '{\"ms\": 0.01}'\n")
        step_kernels.launches(self.check)
        line = self.found("launches", way="captured")[0]
        self.assertEqual((line["step_us"], line["kernels"], line["kernels_us"]), (10.0, 2, 5.0))

    def test_rows_for_the_table_of_trust_are_of_kernels_that_are_alike(self):
        self.record_steps()
        times = [{**entry, "registers": 40} for entry in times_of_steps()]
        (self.folder / "times").write_text("\n".join(json.dumps(entry) for entry in times))
        rows = measured_rows.rows_of("GPT-2", self.folder / "profiles" / "gpt2-bf16-64.jsonl.gz", self.folder / "times",
                                     kernel_comparison.devices.load("h100"))
        found = {row["name"]: row for row in rows}
        self.assertEqual({name: (row["times"], row["us"]) for name, row in found.items()},
                         {"gelu_kernel": (1, 3.0), "768 x 1024 x 768 bf16": (1, 7.0), "norm_kernel": (1, 5.0)})
        self.assertEqual(found["768 x 1024 x 768 bf16"]["kernels"], ["nvjet_hsh", "splitKreduce_kernel"])
        self.assertEqual((found["768 x 1024 x 768 bf16"]["helpers_us"], found["gelu_kernel"]["registers"]), (1.0, 40))

    def test_a_program_that_records_nothing_fails(self):
        self.record_steps()
        self.write("benchmark_model_step", "#!/bin/sh\necho kernel_times: CUPTI refuses: unknown\n")
        step_kernels.compare(self.check)
        self.assertIn("CUPTI refuses", self.found("kernels")[0]["said"][0])
        self.assertEqual(len(self.check.failures), len(steps.RUNS))

    def test_bytes_through_dram_are_those_of_the_last_step(self):
        self.record_steps()
        step_kernels.compare(self.check)
        self.write("ncu", '#!/bin/sh\necho "$@" >&2\necho \'"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\'\n'
                   'echo \'"6","gelu_kernel","dram__bytes_read.sum","byte","4,096"\'\n')
        step_kernels.dram(self.check)
        self.assertEqual(self.found("dram", kernel="gelu_kernel")[0]["bytes"], 4096)
        self.assertIn("--launch-skip 8 --launch-count 4", (self.folder / "out" / "gpu_check.log").read_text())

    def test_tools_that_are_not_allowed_here_are_left_out(self):
        self.record_steps()
        step_kernels.compare(self.check)
        self.write("ncu", "#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'\nexit 1\n")
        step_kernels.dram(self.check)
        self.write("compute-sanitizer", "#!/bin/sh\necho '========= Error: Device not supported'\nexit 1\n")
        self.write("test_runtime", "#!/bin/sh\n")
        sanitizer.run(self.check)
        self.assertEqual(self.check.failures, [])

    def test_findings_of_the_sanitizer_are_failures(self):
        self.write("compute-sanitizer", "#!/bin/sh\necho '========= Invalid __global__ write of size 4 bytes'\n"
                   "echo '========= ERROR SUMMARY: 1 error'\nexit 9\n")
        self.write("test_runtime", "#!/bin/sh\n")
        sanitizer.run(self.check)
        line = self.found("sanitizer", program="test_runtime")[0]
        self.assertEqual((line["summary"], len(line["findings"])), ("ERROR SUMMARY: 1 error", 1))
        self.assertEqual(self.check.failures, ["sanitizer: memcheck of test_runtime: ERROR SUMMARY: 1 error"])

    def test_pytorch_and_llmc_stand_beside_our_steps(self):
        self.write("benchmark_model_step", "#!/bin/sh\necho '{\"ms\": 100, \"loss\": 9}'\n")
        steps.ours(self.check)
        self.write("train_gpt2cu", "#!/bin/sh\necho 'step 1/15 | loss 9.1 (+nanz)| norm 1 | lr 1 | 120.00 ms | 45% bf16 MFU'\n")
        with mock.patch.dict(os.environ, {"LLMC_DIR": str(self.folder / "bin")}):
            steps.llmc(self.check)
        python = self.write("python", "#!/bin/sh\ncase $1 in -c) echo 2.11 True ;; *) echo '{\"ms\": 150, \"loss\": 9}' ;; esac\n")
        with mock.patch("sys.executable", str(python)):
            steps.torch(self.check)
        self.assertEqual([line["ms_median"] for line in self.found("steps", program="llm.c")], [120])
        text = "\n".join(summary.text(self.check))
        self.assertIn("gpt2 in autocast, batch 64, PyTorch eager: 150 ms, 1.50 of lockstep's best", text)

    def test_llmc_is_asked_for_no_validation_every_0_steps(self):
        self.write("train_gpt2cu", "#!/bin/sh\necho \"$@\"\n")
        with mock.patch.dict(os.environ, {"LLMC_DIR": str(self.folder / "bin")}):
            steps.llmc(self.check)
        self.assertNotIn("-v 0", (self.folder / "out" / "gpu_check.log").read_text())

    def test_two_ranks_on_one_gpu_are_two_hosts_for_nccl(self):
        self.write("mpirun", '#!/bin/sh\nshift 4\nOMPI_COMM_WORLD_RANK=1 exec "$@"\n')
        self.write("test_comm_nccl", "#!/bin/sh\necho \"found $NCCL_HOSTID over $NCCL_NET on $NCCL_SOCKET_IFNAME\"\n")
        gpu_tests.two_ranks(self.check)
        self.assertIn("found rank1 over Socket on lo", (self.folder / "out" / "gpu_check.log").read_text())

    def test_one_gpu_that_nccl_does_not_share_is_left_out(self):
        self.write("mpirun", "#!/bin/sh\necho '[ RUN      ] A.B'\necho 'ncclInvalidUsage: Duplicate GPU detected'\n"
                   "echo '[  FAILED  ] A.B (1 ms)'\nexit 1\n")
        self.write("test_comm_nccl", "#!/bin/sh\n")
        gpu_tests.two_ranks(self.check)
        self.assertIn("takes no two ranks on one GPU", self.found("ranks")[0]["skipped"])
        self.assertEqual(self.check.failures, [])


if __name__ == "__main__":
    unittest.main()
