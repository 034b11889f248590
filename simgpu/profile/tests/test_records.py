"""Reading profiles, cutting out steps, and the host's own time."""

import json
import pathlib
import tempfile
import unittest

import host_clock
import records
import window


class Reading(unittest.TestCase):
    def test_records_are_sorted_by_id(self):
        recorder = records.Recorder(ranks=2)
        recorder.elementwise("a", 64, 64)
        recorder.elementwise("b", 64, 64)
        lines = recorder.lines()
        profile = records.parse([lines[0], lines[2], lines[1]])
        self.assertEqual([record["name"] for record in profile.records], ["a", "b"])
        self.assertEqual(profile.ranks, 2)

    def test_what_a_record_leaves_out_is_as_usual(self):
        profile = records.parse(['{"profile": 1}', '{"id": 1, "kind": "host_wait", "waits_for": "device"}'])
        self.assertEqual((profile.records[0]["stream"], profile.records[0]["call_us"], profile.rank), (-1, 0.0, 0))

    def test_what_is_no_profile_is_refused_with_its_line(self):
        header = json.dumps({"profile": 1, "rank": 0, "ranks": 1})
        for lines, words in (([], "empty"), (['{"profile": 2}'], "version 2"), ([header, "{"], ":2: no JSON"),
                             ([header, '{"id": 0, "kind": "dream"}'], "'dream'"),
                             ([header, "[1, 2]"], ":2: .*no record"), (['{"a": 1}'], "no profile")):
            with self.assertRaisesRegex(ValueError, words):
                records.parse(lines)

    def test_files_that_are_none_are_refused_with_their_names(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.jsonl"
            path.write_bytes(bytes([0xFC, 0xFF]))
            for wrong, words in ((path, "a.jsonl: no profile"), (path.parent, "directory"),
                                 (path.parent / "b.jsonl", "b.jsonl: No such file")):
                with self.assertRaisesRegex(ValueError, words):
                    records.read(wrong)

    def test_files_of_other_ranks_are_found_beside_the_first(self):
        with tempfile.TemporaryDirectory() as folder:
            first = pathlib.Path(folder) / "profile.jsonl"
            for name in ("profile.jsonl", "profile.1.jsonl", "profile.2.jsonl", "profile.4.jsonl"):
                (first.parent / name).write_text("")
            self.assertEqual([path.name for path in records.rank_files(first)],
                             ["profile.jsonl", "profile.1.jsonl", "profile.2.jsonl"])


class Windows(unittest.TestCase):
    def test_a_profile_of_few_steps_is_warned_of(self):
        for steps, words in ((0, "no step.*TraceRange"), (1, "only 1 step marked"), (2, "only 2 steps"), (3, "^$")):
            marks = [json.dumps({"id": i, "kind": "mark", "name": "step"}) for i in range(steps)]
            self.assertRegex(window.warning(records.parse(['{"profile": 1}', *marks])), words)

    def profile(self):
        recorder = records.Recorder()
        for number in range(4):
            recorder.add("mark", f"step {number}", stream=-1)
            recorder.elementwise("work", 1024, 1024)
        return recorder.profile()

    def test_the_last_step_with_an_end_counts(self):
        found = window.last_step(self.profile())
        self.assertEqual((found.name, found.begin, found.end), ("step 2", 4, 6))

    def test_a_single_step_ends_with_its_own_mark(self):
        recorder = records.Recorder()
        for name in ("start", "step", "end of step"):
            recorder.add("mark", name, stream=-1)
        found = window.last_step(recorder.profile())
        self.assertEqual((found.begin, found.end), (1, 2))

    def test_marks_may_be_named(self):
        found = window.between(self.profile(), "step 1", "step 3")
        held = [record["id"] for record in self.profile().records if found.holds(record)]
        self.assertEqual(held, [2, 3, 4, 5])

    def test_a_mark_that_is_not_there_is_told_with_those_that_are(self):
        with self.assertRaisesRegex(ValueError, "no mark 'epoch': it has 'step 0'"):
            window.between(self.profile(), "epoch")


def call(number, thread, begin, length, kind="kernel", site=None):
    return {"id": number, "kind": kind, "name": kind, "site": site or f"line {number}", "thread": thread,
            "host_us": begin, "call_us": length}


class HostClock(unittest.TestCase):
    def test_simulated_calls_are_left_out(self):
        found = host_clock.gaps([call(0, 0, 0, 500), call(1, 0, 503, 900), call(2, 0, 1407, 1)], scale=2.0)
        self.assertEqual(found, {0: 0.0, 1: 6.0, 2: 8.0})

    def test_a_gap_in_which_another_thread_was_simulating_is_waiting(self):
        found = host_clock.gaps([call(0, 0, 0, 10), call(1, 1, 12, 1000), call(2, 0, 1020, 10)])
        self.assertEqual(found[2], 10.0)

    def test_threads_that_launch_little_have_no_work_of_their_own(self):
        launches = [call(number, 0, 10 * number, 1, site="loop") for number in range(20)]
        loader = [call(100 + number, 1, 1e6 * number, 1, "copy") for number in range(3)]
        found = host_clock.gaps(launches + loader)
        self.assertEqual((found[101], found[102], found[19]), (0.0, 0.0, 9.0))

    def test_a_gap_counts_as_the_usual_one_between_two_calls(self):
        begins = (0, 10, 20, 5020, 5030)
        found = host_clock.gaps([call(number, 0, begin, 1, site="loop") for number, begin in enumerate(begins)])
        self.assertEqual([found[number] for number in range(5)], [0, 9, 9, 9, 9])

    def test_threads_that_only_poll_have_no_work_of_their_own(self):
        found = host_clock.gaps([call(0, 0, 0, 1), call(1, 0, 100000, 1)] +
                                [call(2 + number, 1, 1000 * number, 1, "query") for number in range(3)])
        self.assertEqual([found[number] for number in (2, 3, 4)], [0.0, 0.0, 0.0])
        self.assertEqual(host_clock.gaps([call(0, 0, 0, 1), call(1, 0, 50, 1)], fixed=3.0)[1], 3.0)
