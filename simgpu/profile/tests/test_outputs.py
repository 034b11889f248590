"""The report, the trace, the drawing, many ranks, and the command itself."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest
import xml.etree.ElementTree
from unittest import mock

import chrome_trace
import device as devices
import drawing
import job
import measures
import records
import report
import scale
import sim_profile
import window
from programs import gpt2, resnet50

H100 = devices.load("h100")
SHAPE = dict(layers=2, width=256, heads=4, batch=2, length=256, vocabulary=1024)


def everything(profile):
    del profile
    return window.Window("all")


def result(ranks=1):
    return job.predict([gpt2.step(**SHAPE, ranks=ranks).profile()], H100, everything)


class Outputs(unittest.TestCase):
    def test_the_report_says_what_the_step_costs_and_why(self):
        words = report.text(result(8))
        for part in ("llm.c, predicted for H100 SXM", "MFU", "exposed", "launches", "Host waits: 5", "ReduceScatter",
                     "Not modelled"):
            self.assertIn(part, words)
        self.assertNotIn("spills", words)

    def test_kernels_that_waste_are_told(self):
        recorder = gpt2.step(**SHAPE)
        next(record for record in recorder.records if record["name"] == "adamw").update(sectors=10 ** 9, spills=8)
        self.assertRegex(report.text(job.predict([recorder.profile()], H100, everything)), r"with spills\n.* 8  adamw")

    def test_occupancy_is_told_and_what_of_it_is_an_estimate(self):
        def words(**fields):
            recorder = records.Recorder()
            recorder.add("kernel", "halve", grid=[1000, 1, 1], block=[256, 1, 1], shared=512, requests=8, sectors=64,
                         ideal_sectors=64, read_distinct=10 ** 9, write_distinct=10 ** 9, atomics=3, **fields)
            return report.text(job.predict([recorder.profile()], H100, everything))
        self.assertRegex(words(), r"\n +\d+ % +~32 +512 \+ \? +3  halve\n")
        self.assertRegex(words(registers=128, static_shared=2048), r"\n +25 % +128 +512 \+ 2048 +3  halve\n")

    def test_the_trace_has_streams_and_the_host(self):
        events = chrome_trace.trace(result(8))["traceEvents"]
        names = {event["args"]["name"] for event in events if event["ph"] == "M"}
        self.assertEqual(names, {"rank 0", "stream 0", "stream 1", "host thread 0"})
        self.assertTrue(all(event["dur"] >= 0 for event in events if event["ph"] == "X"))

    def test_the_drawing_is_a_page_that_is_not_too_large(self):
        page = drawing.page(result(8))
        xml.etree.ElementTree.fromstring(page)
        self.assertIn("What costs most", page)
        self.assertIn("collectives", page)

    def test_what_is_smaller_than_a_pixel_is_drawn_together(self):
        bars = [(10 + number / 1000, 10 + number / 1000 + 0.001, ("kernel", "copy", "kernel")[number % 3], "one")
                for number in range(900)]
        drawn = drawing.merged([*bars, (20, 30, "product", "large")])
        self.assertEqual([bar[2:] for bar in drawn], [("kernel", "900 calls, most time in own kernels", 900),
                                                      ("product", "large", 1)])

    def test_names_are_short(self):
        name = "kernel<4, float, lockstep::functional::generic::Add<float> > (kernels/cuda/pointwise.hpp:85)"
        self.assertEqual(measures.label({"kind": "kernel", "name": name, "op": "add"}),
                         "add: kernel<4, float, Add<float> >")

    def test_sizes_and_times_are_written_as_people_do(self):
        self.assertEqual([report.size(count) for count in (12, 3.2e6, 41e9)], ["12 B", "3.2 MB", "41 GB"])
        self.assertEqual([report.duration(time) for time in (2.0, 2500, 3e6)], ["2.0 us", "2.50 ms", "3.00 s"])


class ManyRanks(unittest.TestCase):
    def test_efficiency_falls_with_ranks_and_shares_keep_their_sum(self):
        profile = gpt2.step(**SHAPE, ranks=8).profile()
        rows = [scale.replay(profile, H100, ranks, ranks // 8, everything) for ranks in (8, 64, 8192)]
        self.assertTrue(1 > rows[0].efficiency > rows[1].efficiency > rows[2].efficiency)
        self.assertLess(rows[2].time["low"], rows[2].time["high"])
        count = sum(record["calls"][0]["count"] * 8 for record in profile.records if record["kind"] == "collective")
        more = scale.of_many(profile, 64)
        self.assertAlmostEqual(sum(record["calls"][0]["count"] * 64 for record in more.records
                                   if record["kind"] == "collective"), count, delta=64 * 10)

    def test_stragglers_come_with_nodes(self):
        self.assertEqual(scale.straggling(1, "high"), 0)
        self.assertAlmostEqual(scale.straggling(4, "expected", (0, 0.01, 0)), 0.0201)
        self.assertTrue(0 <= scale.straggling(64, "low") < scale.straggling(64, "high") < 0.2)
        with self.assertRaisesRegex(ValueError, "1 to 16384"):
            scale.replay(None, H100, 100000, 1)


class Programs(unittest.TestCase):
    def test_flops_are_those_of_the_models(self):
        images = sum(record["flops"] for record in resnet50.step(4).records if record["kind"] == "convolution") / 4
        self.assertAlmostEqual(images / 1e9, 24.3, delta=0.5)
        self.assertAlmostEqual(gpt2.Shape(**gpt2.SMALL, batch=1).parameters / 1e6, 124.5, delta=0.5)


class Command(unittest.TestCase):
    @contextlib.contextmanager
    def refused(self, pattern):
        """What must end with 2 and one line on stderr."""
        with contextlib.redirect_stderr(io.StringIO()) as words, self.assertRaisesRegex(SystemExit, "^2$"):
            yield
        self.assertRegex(words.getvalue(), pattern)
        self.assertEqual(words.getvalue().count("\n"), 1)

    def run_command(self, *arguments):
        out = io.StringIO()
        with mock.patch("sys.argv", ["sim_profile.py", *map(str, arguments)]), contextlib.redirect_stdout(out):
            sim_profile.main()
        return out.getvalue()

    def test_a_profile_is_reported_drawn_and_scaled(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "a.jsonl").write_text("\n".join(gpt2.step(**SHAPE, ranks=8).lines()))
            words = self.run_command("report", folder / "a.jsonl", "--device", "b200", "--trace", folder / "t.json",
                                     "--svg", folder / "s.svg")
            self.assertIn("B200", words)
            self.assertTrue(json.loads((folder / "t.json").read_text())["traceEvents"])
            self.assertTrue((folder / "s.svg").read_text().startswith("<svg"))
            self.assertEqual(self.run_command("scale", folder / "a.jsonl", "--ranks", "8,64").count("%"), 2)

    def test_a_step_is_held_against_bars(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "mine.jsonl"
            path.write_text("\n".join(gpt2.step(**SHAPE).lines()))
            words = self.run_command("check", path, "launches<=92", "waits <= 9", "launches/llm.c-124m<=0.24", "sectors<=1",
                                     "kernel_bytes>=1e6", "--all")
            self.assertEqual(words.count("holds"), 5)
            for bars, message in ((["mfu>=0.99"], "^1$"), (["speed>=1"], "is no bar such as"), (["mfu"], "is no bar"),
                                  (["time/llm.d<=1"], "no program 'llm.d'")):
                with self.refused(message) if message != "^1$" else self.assertRaisesRegex(SystemExit, message):
                    self.run_command("check", path, "--all", *bars)

    def test_no_bar_holds_over_what_was_not_measured(self):
        recorder = records.Recorder()
        recorder.elementwise("large", 1 << 30, 1 << 30)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "mine.jsonl"
            path.write_text("\n".join(recorder.lines()))
            bars = {"sectors<=1": "requests", "conflicts<=1": "requests", "spills<=0": "registers"}
            self.assertEqual(self.run_command("check", path, "--all", *bars).count("holds"), 3)
            for bar, count in bars.items():
                left_out = records.Recorder()
                left_out.records = [{**recorder.records[0], count: None}]
                path.write_text("\n".join(left_out.lines()))
                with self.refused("nothing can be said of large"):
                    self.run_command("check", path, "--all", bar)
            path.write_text(recorder.lines()[0])
            for bar in ("launches<=1", "sectors<=2", "mfu<=1"):
                with self.refused("has no work on the device"):
                    self.run_command("check", path, "--all", bar)

    def test_two_profiles_are_compared(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "mine.jsonl"
            path.write_text("\n".join(gpt2.step(**SHAPE).lines()))
            words = self.run_command("compare", path, "llm.c-124m", "--all")
            self.assertRegex(words, r"launches +92 +396 +0\.23")
            self.assertRegex(words, r"host waits +5 +5 +1\.00")
            with self.refused("takes two profiles"):
                self.run_command("compare", path)

    def test_steps_are_rows_of_a_table_and_layers_that_were_not_profiled_are_added(self):
        with tempfile.TemporaryDirectory() as folder:
            two, four = (pathlib.Path(folder) / f"{layers}.jsonl" for layers in (2, 4))
            for path, kernels in ((two, 3), (four, 5)):
                recorder = records.Recorder()
                for _ in range(kernels):
                    recorder.elementwise("scale", 1_000_000_000, 1_000_000_000)
                path.write_text("\n".join(recorder.lines()))
            table = self.run_command("table", f"two={two}", f"sixteen={two},{four},7", "--all")
            self.assertRegex(table, r"\| two \|.*\| 3 \| 6 GB \| bandwidth 100 % \|")
            self.assertRegex(table, r"\| sixteen \|.*\| 17 \| 34 GB \| bandwidth 100 % \|")
            with self.refused("is no step: NAME=PROFILE"):
                self.run_command("table", f"sixteen={two},7", "--all")

    def test_devices_are_listed_with_sources(self):
        self.assertIn("stas00", self.run_command("devices", "a100"))

    def test_a_known_program_can_be_reported_as_a_profile(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "known.jsonl"
            self.run_command("program", "llm.c-124m", "--ranks", "8", "-o", path)
            self.assertIn("attention backward 1024 x 1024 x 64", self.run_command("report", path, "--all"))

    def test_times_of_the_host_are_not_negative(self):
        with contextlib.redirect_stderr(io.StringIO()) as words, self.assertRaises(SystemExit):
            self.run_command("report", "a.jsonl", "--host-gap", "-1")
        self.assertIn("-1 is no time: give 0 or more", words.getvalue())

    def test_errors_say_what_is_wrong(self):
        with self.refused("sim_profile.py: nowhere.jsonl: No such file"):
            self.run_command("report", "nowhere.jsonl")
