"""Where work is placed: streams, events, graphs, waits of the host, ranks that meet."""

import unittest

import device as devices
import job
import measures
import records
import spans
import timeline
import window
from model import Model

H100 = devices.load("h100")
BIG = 1 << 28
COST, GAPS = devices.host_costs()


def placed(*recorders, **options):
    profiles = [recorder.profile() for recorder in recorders]
    ranks = profiles[0].ranks
    return timeline.of(profiles, Model(H100, ranks), timeline.Options(**options))


def work(*recorders, rank=0, **options):
    return measures.work_of(placed(*recorders, **options), rank)


def step(*recorders, rank=0, **options):
    return measures.step_of(placed(*recorders, **options), rank, window.Window("all"))


class Streams(unittest.TestCase):
    def test_work_of_a_stream_is_in_order_and_streams_run_beside_each_other(self):
        recorder = records.Recorder()
        for stream in (0, 0, 1):
            recorder.elementwise("any", BIG, BIG, stream)
        first, second, beside = work(recorder)
        self.assertGreaterEqual(second.begin, first.end)
        self.assertLess(beside.begin, first.end)

    def test_work_beside_other_work_shares_the_device(self):
        recorder = records.Recorder()
        recorder.elementwise("alone", BIG, BIG)
        alone = work(recorder)[0].duration
        recorder.elementwise("beside", BIG, BIG, 1)
        self.assertAlmostEqual(max(piece.end for piece in work(recorder)), 2 * alone, delta=0.1 * alone)

    def test_an_event_holds_another_stream(self):
        recorder = records.Recorder()
        recorder.elementwise("first", BIG, BIG, 0)
        recorder.add("event_record", stream=0, event=7, version=1)
        recorder.elementwise("more", BIG, BIG, 0)
        recorder.add("stream_wait", stream=1, event=7, version=1)
        recorder.elementwise("waits", BIG, BIG, 1)
        first, more, waits = work(recorder)
        self.assertAlmostEqual(waits.begin, first.end + GAPS["after_event"][1], places=6)
        self.assertLess(waits.begin, more.end)

    def test_the_legacy_default_stream_holds_others_and_is_held(self):
        recorder = records.Recorder()
        first = recorder.elementwise("first", BIG, BIG, 1)
        legacy = recorder.elementwise("legacy", BIG, BIG, 0, follows=[first])
        recorder.elementwise("after", BIG, BIG, 1, follows=[legacy])
        first, legacy, after = work(recorder)
        self.assertGreaterEqual(legacy.begin, first.end)
        self.assertGreaterEqual(after.begin, legacy.end)

    def test_an_event_that_was_never_recorded_holds_nothing(self):
        recorder = records.Recorder()
        recorder.add("stream_wait", stream=1, event=7, version=1)
        recorder.elementwise("any", BIG, BIG, 1)
        self.assertLess(work(recorder)[0].begin, 20)


class Host(unittest.TestCase):
    def test_small_kernels_wait_for_their_launches(self):
        recorder = records.Recorder(host_us=4.0)
        for _ in range(100):
            recorder.elementwise("small", 64, 64)
        found = step(recorder)
        self.assertAlmostEqual(found.time, 100 * (4.0 + COST["kernel"][1]), delta=15)
        self.assertGreater(found.launch_bound, 0.5 * found.time)
        self.assertAlmostEqual(step(recorder, host_scale=2.0).time / found.time, 1.6, delta=0.05)

    def test_a_graph_needs_no_launches(self):
        recorder = records.Recorder(host_us=4.0)
        recorder.begin_graph()
        for _ in range(100):
            recorder.elementwise("small", 64, 64)
        recorder.end_graph()
        found = step(recorder)
        self.assertLess(found.time, 250)
        self.assertEqual(found.launches, 1)
        self.assertEqual(len(found.work), 100)

    def test_branches_of_a_graph_run_beside_each_other(self):
        recorder = records.Recorder()
        launch = recorder.add("graph_launch", graph=1, nodes=3)
        ids = [recorder.elementwise("node", BIG, BIG, stream) for stream in (0, 1, 0)]
        for number, after in zip(ids, ([], [], ids[1:2])):
            recorder.records[number].update(graph_launch=launch, after=after)
        last = recorder.elementwise("behind", BIG, BIG)
        one, two, three, behind = work(recorder)
        self.assertEqual(one.begin, two.begin)
        self.assertGreaterEqual(three.begin, max(one.end, two.end))
        self.assertGreaterEqual(behind.begin, three.end)
        self.assertEqual(behind.record["id"], last)

    def test_the_host_waits_for_what_it_asks_for(self):
        recorder = records.Recorder()
        recorder.elementwise("long", 4 * BIG, 4 * BIG)
        recorder.add("host_wait", "cudaStreamSynchronize", stream=0, waits_for="stream", site="f (a.cpp:1)")
        recorder.elementwise("next", BIG, BIG)
        found = step(recorder)
        (times, waited), = found.waits.values()
        self.assertEqual((list(found.waits), times), (["f (a.cpp:1)"], 1))
        self.assertGreater(waited, 0.9 * found.work[0].duration)
        self.assertGreater(found.work[1].begin, found.work[0].end + GAPS["host_wakes"][1])

    def test_other_threads_follow_the_one_that_launches(self):
        recorder = records.Recorder(host_us=4.0)
        for _ in range(10):
            recorder.elementwise("small", 64, 64)
        recorder.add("copy", "cudaMemcpyAsync", stream=1, direction="h2d", bytes=64, pinned=True, thread=1)
        recorder.add("host_wait", "cudaEventQuery", stream=-1, waits_for="device", thread=2)
        found = step(recorder)
        self.assertGreater(found.work[-1].begin, found.work[8].begin)
        self.assertEqual({entry.node.record["thread"] for entry in found.calls}, {0})
        self.assertEqual(found.waits, {})

    def test_long_work_of_the_host_is_told(self):
        recorder = records.Recorder(host_us=4.0)
        recorder.elementwise("small", 64, 64)
        recorder.clock += 5000
        recorder.elementwise("late", 64, 64)
        self.assertEqual(measures.longest_work(step(recorder))[0], (5004.0, "late"))

    def test_a_plain_copy_from_or_to_the_host_waits(self):
        for name, direction, pinned, waits in (("cudaMemcpy", "d2h", True, 1), ("cudaMemcpyAsync", "d2h", False, 1),
                                               ("cudaMemcpyAsync", "d2h", True, 0), ("cudaMemcpy", "h2d", False, 1),
                                               ("cudaMemcpy", "d2d", False, 0), ("cudaMemcpyPeer", "p2p", False, 0)):
            recorder = records.Recorder()
            recorder.add("copy", name, direction=direction, bytes=1 << 26, pinned=pinned)
            self.assertEqual(sum(times for times, _ in step(recorder).waits.values()), waits, (name, direction, pinned))


def rank_of_two(rank, before, number=0):
    recorder = records.Recorder(rank=rank, ranks=2)
    recorder.elementwise("work", before, before)
    recorder.collective("AllReduce", 1 << 20, 2, communicator=number)
    recorder.elementwise("after", BIG, BIG)
    return recorder


class Ranks(unittest.TestCase):
    def test_a_collective_begins_when_the_last_rank_has_come(self):
        early, late = rank_of_two(0, 1 << 20), rank_of_two(1, 4 * BIG)
        fast, slow = work(early, late, rank=0), work(early, late, rank=1)
        self.assertAlmostEqual(fast[1].end, slow[1].end)
        self.assertAlmostEqual(fast[1].waited, slow[1].begin - fast[1].begin)
        self.assertEqual(slow[1].waited, 0)
        self.assertGreater(step(early, late, rank=0).exposed_to_ranks, 100)

    def test_collectives_that_ranks_call_in_another_order_are_told(self):
        def crossed(rank):
            recorder = records.Recorder(rank=rank, ranks=2)
            for number in (rank, 1 - rank):
                recorder.collective("AllReduce", 1 << 20, 2, communicator=number)
            return recorder
        with self.assertRaisesRegex(ValueError, "waits for itself"):
            placed(crossed(0), crossed(1))

    def test_sends_meet_nobody(self):
        sends = []
        for rank in range(2):
            sends.append(rank_of_two(rank, BIG))
            for record in sends[rank].records:
                for call in record.get("calls", ()):
                    call["op"] = "Send"
        self.assertEqual([piece.waited for piece in work(*sends)], [0, 0, 0])

    def test_an_exchange_beside_computation_is_not_exposed_and_slows_it(self):
        recorder = records.Recorder(ranks=8)
        recorder.collective("AllReduce", 1 << 24, 8, stream=1)
        recorder.product(8192, 8192, 8192)
        found = step(recorder)
        self.assertLess(found.exposed, 10)
        self.assertGreater(found.work[1].duration, 1.01 * found.work[1].prediction.expected)


class Measures(unittest.TestCase):
    def test_a_step_is_cut_out_between_marks(self):
        recorder = records.Recorder()
        for number in range(4):
            recorder.add("mark", f"step {number}", stream=-1)
            recorder.product(4096, 4096, 4096)
        result = job.predict([recorder.profile()], H100)
        found = result.slowest()
        self.assertEqual(len(found.work), 1)
        self.assertAlmostEqual(found.time, found.work[0].duration + GAPS["after_predecessor"][1], places=6)
        self.assertTrue(result.slowest("low").time < found.time < result.slowest("high").time)
        self.assertAlmostEqual(found.utilisation(H100.peak_bf16), 0.7, delta=0.1)

    def test_the_peak_is_of_the_products_that_most_flops_are_of(self):
        for dtype, compute, rate in (("bf16", "f32", "bf16"), ("f32", "tf32", "tf32"), ("f32", "f32", "f32")):
            recorder = records.Recorder()
            recorder.product(4096, 4096, 4096, dtype=dtype, compute=compute)
            found = job.predict([recorder.profile()], H100).slowest()
            self.assertEqual(found.rate, rate)
            self.assertTrue(0.3 < found.utilisation(H100.peak(rate)) < 1)

    def test_spans(self):
        self.assertEqual(spans.union([(3, 4), (0, 1), (1, 2), (5, 5)]), [(0, 2), (3, 4)])
        self.assertEqual(spans.without([(0, 10)], [(1, 2), (4, 6), (9, 12)]), [(0, 1), (2, 4), (6, 9)])
        self.assertEqual(spans.clipped([(0, 4), (6, 9)], 2, 7), [(2, 4), (6, 7)])
