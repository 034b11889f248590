"""What gpu_check makes of programs that pass, fail, break the GPU, crash or hang, and of times on a GPU."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import check as checks  # noqa: E402
import gpu_tests  # noqa: E402
import kernel_comparison  # noqa: E402
import library_kernels  # noqa: E402
import measured_rows  # noqa: E402
import place  # noqa: E402
import results  # noqa: E402
import sanitizer  # noqa: E402
import step_kernels  # noqa: E402
import steps  # noqa: E402
import summary  # noqa: E402

# A test program of four cases, of which the second does what the environment says.
PROGRAM = """#!/bin/sh
for name in A.One B.Two/Gpus C.Three D.Four; do
  case $1 in *"-"*"$name"*) continue ;; esac
  echo "[ RUN      ] $name"
  case $name in
    B.*) case $HOW in
      fails) echo "x.cpp:1: Failure"; echo "[  FAILED  ] $name, where GetParam() = Gpus (1 ms)"; continue ;;
      breaks) echo "CUDA: an illegal memory access was encountered"; echo "[  FAILED  ] $name (1 ms)"; continue ;;
      crashes) kill -SEGV $$ ;;
      hangs) sleep 60 ;;
      dies) echo "[  FAILED  ] $name (1 ms)"; kill -SEGV $$ ;;
    esac ;;
    C.*) echo "no second GPU"; echo "[  SKIPPED ] $name (0 ms)"; continue ;;
  esac
  echo "[       OK ] $name (2 ms)"
done
"""


class Case(unittest.TestCase):
    """With a folder of programs and of results."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()
        self.results = results.Results(self.folder / "out")
        self.addCleanup(self.results.json_file.close)
        self.addCleanup(self.results.log_file.close)
        self.check = checks.Check(place.Place(self.folder), self.results, 1, True)
        output = contextlib.redirect_stdout(io.StringIO())
        output.__enter__()
        self.addCleanup(output.__exit__, None, None, None)

    def write(self, name, text):
        path = self.folder / "bin" / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def run_suite(self, how, limit=100, hangs=50):
        self.write("test_it", PROGRAM)
        environment = {**os.environ, "HOW": how}
        return gpu_tests.Run(self.check, gpu_tests.Suite("test_it"), limit, environment, hangs=hangs).go()


class Tests(Case):
    def test_counts_what_passes_fails_and_is_skipped(self):
        fields = self.run_suite("fails")
        self.assertEqual((fields["passed"], fields["failed"], fields["skipped"]), (2, ["B.Two/Gpus"], 1))
        self.assertEqual((fields["ended"], fields["skipped_because"]), ("done", ["no second GPU"]))

    def test_goes_on_in_a_new_process_after_the_gpu_is_broken(self):
        fields = self.run_suite("breaks")
        self.assertEqual((fields["passed"], fields["failed"], fields["ended"]), (2, ["B.Two/Gpus"], "done"))
        log = (self.folder / "out" / "gpu_check.log").read_text(encoding="utf-8")
        self.assertEqual(log.count("RUN      ] A.One"), 1)

    def test_goes_on_after_a_crash(self):
        fields = self.run_suite("crashes")
        self.assertEqual((fields["passed"], fields["failed"], fields["ended"]), (2, ["B.Two/Gpus"], "done"))

    def test_goes_on_after_a_crash_between_two_tests_and_tells_of_it(self):
        fields = self.run_suite("dies")
        self.assertEqual((fields["passed"], fields["failed"], fields["skipped"]), (2, ["B.Two/Gpus"], 1))
        self.assertEqual(fields["ended"], "killed by signal 11 behind B.Two/Gpus")
        self.assertFalse(gpu_tests.is_fine(fields))

    def test_goes_on_without_what_hangs(self):
        fields = self.run_suite("hangs", hangs=2)
        self.assertEqual((fields["passed"], fields["failed"], fields["ended"]), (2, ["B.Two/Gpus"], "done"))

    def test_what_the_limit_cuts_off_is_named_and_no_failure(self):
        begin = time.monotonic()
        fields = self.run_suite("hangs", limit=2)
        self.assertLess(time.monotonic() - begin, 50)
        self.assertEqual((fields["passed"], fields["failed"], fields["ended"]), (1, [], "cut off in B.Two/Gpus"))
        self.assertTrue(gpu_tests.is_fine(fields))


class Stages(Case):
    def test_an_error_in_a_stage_is_told_and_the_next_one_runs(self):
        self.check.stage("one", 10, lambda check: 1 / 0)
        self.check.stage("two", 10, lambda check: check.results.add("two", fine=True))
        lines = [json.loads(line) for line in (self.folder / "out" / "gpu_check.jsonl").read_text().splitlines()]
        self.assertIn("ZeroDivisionError", lines[0]["failed"])
        self.assertTrue(lines[2]["fine"])
        self.assertIn("FAILED: one: ZeroDivisionError: division by zero", summary.text(self.check))

    def test_no_stage_outlasts_the_whole(self):
        self.check.end = time.monotonic() + 1
        self.check.stage("late", 100, lambda check: self.fail("was run"))
        self.assertEqual(self.results.of("late")[0]["skipped"], "no time is left")

    def test_programs_that_do_not_start_are_named_with_what_they_said(self):
        self.write("test_a", "#!/bin/sh\necho libx.so: not found; exit 127\n")
        self.write("test_b", "#!/bin/sh\nexit 0\n")
        checks.machine.programs_start(self.check)
        entry = self.results.of("machine")[0]
        self.assertEqual([(bad["program"], bad["said"]) for bad in entry["programs_that_do_not"]],
                         [("test_a", ["libx.so: not found"])])

    def test_a_step_that_takes_longer_at_first_counts_by_its_later_times(self):
        self.write("benchmark_model_step", "#!/bin/sh\nfor t in 90 10 12 11 10 12; do echo '{\"ms\": '$t', \"loss\": 2.5}'; done\n")
        steps.ours(self.check, (("gpt2", "bf16"),))
        entry = self.results.of("steps")[0]
        self.assertEqual((entry["ms_median"], entry["ms_min"], entry["last_loss"]), (11.5, 10, 2.5))


class Comparison(unittest.TestCase):
    """Kernels of the last step, though others ran before, and library kernels between them."""

    def setUp(self):
        recorder = kernel_comparison.records.Recorder()
        for _ in range(3):
            recorder.add("mark", "step")
            recorder.elementwise("gelu_kernel<4, Float> (kernels/cuda/unary.cu:3)", 1 << 20, 1 << 20)
            recorder.product(768, 1024, 768)
            recorder.elementwise("norm_kernel (kernels/cuda/norm.cu:9)", 1 << 20, 1 << 20)
        self.step = kernel_comparison.predicted_step(recorder.profile(), kernel_comparison.devices.load("h100"))

    def times(self, names):
        return [{"kind": "kernel", "name": name, "us": us} for name, us in names]

    def rows(self, names):
        rows, words = kernel_comparison.compare(self.step, self.times(names))
        return {line["what"]: line for line in kernel_comparison.lines_of(rows)}, words

    own = "void lockstep::cuda_kernels::(anonymous namespace)::{}<4, lockstep::Float>(lockstep::Layout<2>, int)"

    def test_joins_by_order(self):
        one_step = [(self.own.format("gelu_kernel"), 3.0), ("nvjet_hsh_128x256", 7.0), ("splitKreduce", 1.0),
                    (self.own.format("norm_kernel"), 5.0)]
        rows, words = self.rows([("void lockstep::setup(int)", 99.0)] + one_step * 2)
        self.assertEqual({what: line["measured_us"] for what, line in rows.items()},
                         {"gelu_kernel<4, Float>": 3.0, "768 x 1024 x 768 bf16": 8.0, "norm_kernel": 5.0, "splitKreduce": 1.0})
        self.assertEqual(words, [])

    def test_joins_around_kernels_that_were_not_expected(self):
        rows, words = self.rows([(self.own.format("gelu_kernel"), 3.0), (self.own.format("copy_kernel"), 50.0), ("nvjet", 7.0),
                                 (self.own.format("norm_kernel"), 5.0)])
        self.assertEqual({what: line["measured_us"] for what, line in rows.items()},
                         {"gelu_kernel<4, Float>": 3.0, "768 x 1024 x 768 bf16": 7.0, "norm_kernel": 5.0})
        self.assertEqual(words, [])

    def test_several_calls_in_a_row_are_told_apart_by_the_names_of_their_kernels(self):
        recorder = kernel_comparison.records.Recorder()
        for _ in range(2):
            recorder.add("mark", "step")
            recorder.elementwise("norm_kernel (kernels/cuda/norm.cu:9)", 1 << 20, 1 << 20)
            recorder.product(768, 768, 65536, name="weight gradient", epilogue="bias_gradient")
            recorder.attention(1, 12, 1024, 64, backward=True)
            recorder.product(768, 1024, 768)
            recorder.elementwise("norm_kernel (kernels/cuda/norm.cu:9)", 1 << 20, 1 << 20)
        self.step = kernel_comparison.predicted_step(recorder.profile(), kernel_comparison.devices.load("h100"))
        norm = (self.own.format("norm_kernel"), 5.0)
        products = [("nvjet_sm90_splitK_NTT", 40.0), ("void cublasLt::splitKreduce_kernel<32, 16>(int)", 2.0),
                    ("void cublasLt::epilogue::impl::globalKernelBgradAB_v2<8, 128>(int)", 9.0)]
        attention = [("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*)", 3.0),
                     ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma", 30.0),
                     ("void cudnn::fusion::convert_dq_to_16bits<true>(void const*)", 4.0)]
        rows, words = self.rows([norm, *products, *attention, ("sm90_xmma_gemm_bf16bf16", 11.0), norm])
        self.assertEqual(words, [])
        self.assertEqual({what: line["measured_us"] for what, line in rows.items() if line["kind"] != "kernel"},
                         {"768 x 768 x 65536 bf16 bias_gradient": 51.0, "attention backward 1024 x 1024 x 64": 37.0,
                          "768 x 1024 x 768 bf16": 11.0, "globalKernelBgradAB_v2": 9.0, "convert_dq_to_16bits": 4.0,
                          "compute_dot_do_o_specialized": 3.0, "splitKreduce_kernel": 2.0})

    def test_calls_whose_kernels_do_not_say_whose_they_are_share_them_as_predicted(self):
        self.assertIsNone(library_kernels.matched(["product", "attention"], [{"name": "nvjet_a"}, {"name": "nvjet_b"}]))
        self.assertIsNone(library_kernels.matched(["product", "product"], [{"name": "nvjet_a"}]))
        self.assertEqual(len(library_kernels.matched(["convolution", "product"], [{"name": "init_device_workspace_kernel"},
                                                                                  {"name": "nvjet_a"}, {"name": "nvjet_b"}])), 2)

    def test_knows_kernels_in_namespaces_without_names(self):
        for name in ("void lockstep::<unnamed>::norm_kernel<4, lockstep::Float>(int)", "lockstep::(anonymous namespace)::norm_kernel<4, Float>",
                     "norm_kernel<4, lockstep::Float> (kernels/cuda/norm.cu:9)"):
            self.assertEqual(kernel_comparison.base_name(name), "norm_kernel")
            self.assertEqual(kernel_comparison.full_name(name), "norm_kernel<4,Float>")

    def test_says_how_many_kernels_did_not_run(self):
        rows, words = self.rows([(self.own.format("norm_kernel"), 5.0)])
        self.assertEqual(rows["norm_kernel"]["measured_us"], 5.0)
        self.assertEqual(words, ["1 of 2 kernels of a step did not run in that order"])

    def test_reads_the_counters_of_ncu(self):
        lines = ['==PROF== Connected', '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"',
                 '"0","gelu_kernel","gpu__time_duration.sum","ns","2,000"', '"0","gelu_kernel","dram__bytes_read.sum","byte","1,024"',
                 '"0","gelu_kernel","dram__bytes_write.sum","byte","1,024"']
        self.assertEqual(step_kernels.bytes_of(lines), {"gelu_kernel": [1, 2.0, 2048.0]})

    def test_knows_devices_by_their_names(self):
        self.assertEqual([kernel_comparison.device_of(name) for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "Simulated GPU")],
                         ["h100", "h200", None])


if __name__ == "__main__":
    unittest.main()
