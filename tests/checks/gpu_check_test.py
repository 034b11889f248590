#!/usr/bin/env python3
"""scripts/gpu_check.sh over the programs of a build with the simulated GPU: gpu_check_test.py BUILD"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop()).resolve()
sys.path.insert(0, str(ROOT / "scripts" / "gpu"))

import kernel_comparison  # noqa: E402


class GpuCheck(unittest.TestCase):
    def run_check(self, devices):
        """(exit code, what was printed, {stage: lines}) of all stages."""
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "OUT": folder, "LOCKSTEP_SIM_DEVICES": str(devices)}
            environment.pop("LLMC_DIR", None)
            answer = subprocess.run([ROOT / "scripts" / "gpu_check.sh", "--build", BUILD, "--quick"], env=environment,
                                    capture_output=True, text=True, check=False)
            lines = [json.loads(line) for line in (pathlib.Path(folder) / "gpu_check.jsonl").read_text().splitlines()]
            self.assertTrue(answer.stdout.endswith((pathlib.Path(folder) / "summary.txt").read_text()), answer.stdout)
        stages = {}
        for line in lines:
            stages.setdefault(line["stage"], []).append(line)
        return answer.returncode, answer.stdout, stages

    def test_all_stages_run_or_say_why_not(self):
        code, said, stages = self.run_check(2)
        self.assertEqual(code, 0, said)
        self.assertEqual([line["name"] for line in stages["stage"]],
                         ["machine", "ceilings", "describe", "tests", "parity", "twins", "steps", "kernels", "launches", "torch", "choices",
                          "ranks", "jobs", "saves", "sanitizer", "dram", "benchmarks", "llm.c", "torch.compile"])
        self.assertTrue(any("tflops" in line for line in stages["ceilings"]))
        self.assertTrue(any(line.get("us_queued", 0) > 0 for line in stages["ceilings"]))
        self.assertGreaterEqual(sum(line.get("passed", 0) for line in stages["tests"]), 9)
        self.assertEqual([line["failed"] for line in stages["tests"] + stages["ranks"]], [[], []])
        self.assertGreater(stages["ranks"][0]["passed"], 0)
        self.assertEqual({line["job"]: line["wrong"] for line in stages["jobs"]},
                         dict.fromkeys(("plain", "two ranks", "ZeRO 2", "resumed", "killed"), ""))
        self.assertEqual([line["way"] for line in stages["saves"]], ["without", "every 20 steps"])
        self.assertTrue(any(line.get("program") == "lockstep" and line["ms_median"] > 0 for line in stages["steps"]))
        self.assertIn("skipped", stages["describe"][0])
        self.assertIn("skipped", stages["kernels"][0])
        self.assertTrue(any("forward_ms" in line for line in stages["benchmarks"]))
        self.assertTrue(any("no case on a GPU" in line.get("skipped", "") for line in stages["benchmarks"]))

    def test_without_a_gpu_it_says_so(self):
        code, said, stages = self.run_check(0)
        self.assertEqual(code, 2, said)
        self.assertIn("no CUDA device", said)
        self.assertEqual([line["name"] for line in stages["stage"]], ["machine"])
        self.assertTrue(any(line.get("starts") for line in stages["machine"]))

    def test_times_of_a_recorded_step_are_compared_with_the_predicted_ones(self):
        """As a GPU would leave them that keeps exactly to what is predicted, but takes twice as long for products."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "step.jsonl"
            environment = {**os.environ, "LOCKSTEP_SIM_PROFILE": str(file), "LOCKSTEP_SIM_DEVICES": "1"}
            subprocess.run([BUILD / "bin" / "benchmark_model_step", "--small", "--batch", "1", "--steps", "3"], env=environment,
                           check=True, capture_output=True)
            step = kernel_comparison.predicted_step(kernel_comparison.read_profile(file), kernel_comparison.devices.load("h100"))
        libraries = {"product": "nvjet", "attention": "cudnn_generated_sdpa_flash"}
        times = [{"kind": "kernel", "us": piece.duration, "name": "void lockstep::" + piece.record["name"] + "(int)"}
                 if piece.record["kind"] == "kernel" else
                 {"kind": "kernel", "us": 2 * piece.duration, "name": libraries[piece.record["kind"]]}
                 for piece in step.work if piece.record["kind"] in ("kernel", "product", "attention")]
        rows, words = kernel_comparison.compare(step, times)
        self.assertEqual(words, [])
        kinds = {"kernel": 1.0, "product": 2.0, "attention": 2.0}
        found = {kind: [row.measured / row.predicted for (of, _), row in rows.items() if of == kind] for kind in kinds}
        for kind, ratio in kinds.items():
            self.assertTrue(found[kind])
            for value in found[kind]:
                self.assertAlmostEqual(value, ratio)


if __name__ == "__main__":
    unittest.main()
