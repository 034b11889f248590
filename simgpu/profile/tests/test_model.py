"""What kernels, products, attention, copies and collectives are predicted to take, and by what they are bound."""

import math
import unittest

import attention
import device as devices
import kernels
import network
from model import Model
from prediction import BANDWIDTH, HOST_LINK, LATENCY, NETWORK, PRODUCTS, SHARED_MEMORY
from records import Recorder

H100 = devices.load("h100")


def made(method, *positional, **named):
    recorder = Recorder()
    getattr(recorder, method)(*positional, **named)
    return recorder.records[-1]


def predict(record, device=H100, **options):
    return Model(device, **options).predict(record)


class Devices(unittest.TestCase):
    def test_every_number_has_a_source_and_a_confidence(self):
        for key in devices.names():
            for name, (value, source, confidence) in devices.load(key).numbers.items():
                self.assertTrue(value is not None and len(source) > 5 and confidence in "HMLE", (key, name))
        self.assertEqual(devices.names(), ["a100", "b200", "h100", "h200"])

    def test_changes_are_of_numbers_that_are_there(self):
        self.assertEqual(devices.load("a100", {"dram_bandwidth": 1.555e12}).dram_bandwidth, 1.555e12)
        with self.assertRaisesRegex(ValueError, "no number 'colour'"):
            devices.load("a100", {"colour": 1})
        with self.assertRaisesRegex(ValueError, "there are a100, b200"):
            devices.load("abacus")


    def test_every_device_predicts_every_kind_of_record(self):
        recorder = Recorder(ranks=8)
        recorder.elementwise("kernel", 1 << 20, 1 << 20)
        for dtype in ("f64", "f32", "bf16", "f16"):
            recorder.product(512, 512, 512, dtype=dtype)
        for backward in (False, True):
            for width in (32, 80, 128, 256):
                recorder.attention(1, 4, 300, width, backward, causal=width < 100)
        for direction in ("h2d", "d2h", "d2d", "p2p", "h2h"):
            recorder.add("copy", direction=direction, bytes=1000)
        recorder.add("memset", bytes=1000)
        for op in ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll", "Send"):
            recorder.collective(op, 1000, 8)
        for key in devices.names():
            for record in recorder.records:
                found = predict(record, devices.load(key), ranks=8)
                self.assertTrue(0 < found.low < found.expected < found.high < 1e4, (key, record))

    def test_what_is_not_known_of_a_device_is_told(self):
        unknown = devices.Device("mine", devices.read("h100"))
        with self.assertRaisesRegex(ValueError, "no fill_us for 'mine'"):
            network.choose(unknown, "AllReduce", 1000, network.Group(8))
        with self.assertRaisesRegex(ValueError, "no rate for products of 'i8'"):
            H100.peak("i8")


class Kernels(unittest.TestCase):
    def test_a_large_copy_is_bound_by_bandwidth_and_a_small_one_by_its_launch(self):
        large = predict(made("elementwise", "copy", 1 << 30, 1 << 30))
        self.assertEqual(large.bound, BANDWIDTH)
        self.assertAlmostEqual(large.expected, (2 << 30) / (0.85 * 3.35e12) * 1e6, delta=0.02 * large.expected)
        self.assertLess(large.low, large.expected)
        self.assertLess(large.expected, large.high)
        small = predict(made("elementwise", "copy", 4096, 4096))
        self.assertEqual(small.bound, LATENCY)
        self.assertLess(small.expected, 3.0)

    def test_blocks_on_an_sm_are_limited_by_registers_and_shared_memory(self):
        record = made("elementwise", "any", 1 << 20, 1 << 20)
        self.assertEqual(kernels.blocks_per_sm(H100, record), 8)
        self.assertEqual(kernels.blocks_per_sm(H100, dict(record, registers=128)), 2)
        self.assertEqual(kernels.blocks_per_sm(H100, dict(record, shared=100 * 1024)), 2)

    def test_one_block_cannot_draw_on_all_of_the_memory(self):
        record = dict(made("elementwise", "sum", 1 << 26, 4), grid=[1, 1, 1], block=[1024, 1, 1])
        self.assertGreater(predict(record).expected, 30 * predict(made("elementwise", "sum", 1 << 26, 4)).expected)

    def test_threads_that_exchange_much_may_take_much_longer_than_their_bytes(self):
        record = made("elementwise", "sum", 1 << 30, 1 << 20)
        sums = dict(record, shared_requests=record["requests"], shared_wavefronts=record["requests"])
        self.assertGreater(predict(sums).expected, 1.1 * predict(record).expected)
        self.assertGreater(predict(sums).high, 2 * predict(record).high)
        self.assertEqual(predict(sums).low, predict(record).low)
        few = dict(record, shared_requests=record["requests"] // 10)
        self.assertEqual(predict(few), predict(record))

    def test_strewn_accesses_cost_whole_sectors(self):
        record = made("elementwise", "strewn", 1 << 28, 1 << 28)
        strewn = dict(record, sectors=8 * record["ideal_sectors"])
        self.assertGreater(predict(strewn).expected, 1.9 * predict(record).expected)

    def test_bank_conflicts_can_bind(self):
        record = dict(made("elementwise", "transpose", 1 << 24, 1 << 24), shared_requests=1 << 20,
                      shared_wavefronts=32 << 20)
        self.assertEqual(predict(record).bound, SHARED_MEMORY)

    def test_a_kernel_that_was_not_run_is_judged_by_its_bytes(self):
        counted = made("elementwise", "copy", 1 << 28, 1 << 28)
        known = ("kind", "name", "grid", "block", "shared", "read_distinct", "write_distinct")
        bare = {name: counted[name] for name in known}
        self.assertAlmostEqual(predict(bare).expected / predict(counted).expected, 1, delta=0.05)

    def test_data_in_the_l2_come_faster(self):
        record = made("elementwise", "add", 8 << 20, 4 << 20)
        there, gone = (predict(dict(record, resident=share)).expected for share in (1.0, 0.0))
        self.assertLess(there, 0.6 * gone)


class LibraryCalls(unittest.TestCase):
    def test_products_are_bound_by_arithmetic_or_by_their_operands(self):
        square = predict(made("product", 8192, 8192, 8192), alone=True)
        self.assertEqual(square.bound, PRODUCTS)
        self.assertAlmostEqual(square.flops / square.expected / 1e6, 760, delta=40)
        self.assertEqual(predict(made("product", 32, 8192, 8192)).bound, BANDWIDTH)

    def test_rows_that_begin_anywhere_and_full_precision_are_slower(self):
        aligned = predict(made("product", 8192, 10944, 8192)).expected
        self.assertGreater(predict(made("product", 8192, 10922, 8192)).expected, 1.3 * aligned)
        full, tf32 = (predict(made("product", 8192, 8192, 8192, dtype="f32", compute=compute)).expected
                      for compute in ("f32", "tf32"))
        self.assertGreater(full, 5 * tf32)

    def test_products_are_slow_by_their_layouts_where_these_are_recorded(self):
        def product(widths, leading, columns=8192):
            return predict(made("product", 8192, 8192, columns, widths=widths, leading=leading))
        whole = product([8192] * 4, [8192] * 4)
        self.assertEqual(whole, predict(made("product", 8192, 8192, 8192)))
        # 8191 lines of full width, one by one.
        self.assertLess(product([8192] * 4, [8192] * 4, 8191).expected, 1.01 * whole.expected)
        narrow = product([8191, 8192, 8192, 8192], [8192] * 4)
        apart = product([8191, 8192, 8192, 8192], [8191, 8192, 8192, 8192])
        self.assertGreater(narrow.expected, 1.3 * whole.expected)
        self.assertEqual(narrow.expected, apart.expected)
        self.assertEqual(narrow.low, whole.low)
        self.assertGreater(apart.low, 1.3 * whole.low)

    def test_products_within_steps_are_slower_than_alone(self):
        record = made("product", 8192, 8192, 8192)
        self.assertAlmostEqual(predict(record).expected / predict(record, alone=True).expected,
                               H100.sustained_products)

    def test_what_an_epilogue_touches_comes_after_the_product(self):
        plain, with_input = (predict(made("product", 65536, 3072, 768, extra=extra)) for extra in (0, 1 << 28))
        self.assertAlmostEqual(with_input.expected - plain.expected,
                               (1 << 28) / (H100.dram_efficiency * H100.dram_bandwidth) * 1e6 * H100.sustained_products, places=3)
        gradient = predict(made("product", 768, 3072, 65536, epilogue="bias_gradient"))
        again = 65536 * 3072 * 2 / H100.dram_bandwidth * 1e6
        self.assertGreater(gradient.expected, predict(made("product", 768, 3072, 65536)).expected + again)

    def test_a_deep_sum_with_few_outputs_is_split(self):
        deep, shallow = (predict(made("product", 768, 768, depth)) for depth in (65536, 4096))
        self.assertLess(deep.expected, 14 * shallow.expected)

    def test_attention_lies_between_the_points_of_its_table(self):
        points = [[512, 315], [2048, 484]]
        self.assertAlmostEqual(attention.rate_at(points, 2048), 484e12, delta=1e6)
        self.assertAlmostEqual(attention.rate_at(points, 1024), 412e12, delta=2e12)
        self.assertEqual(attention.rate_at(points, 1 << 20), 484e12)
        forward, backward = (predict(made("attention", 8, 16, 1024, 128, backward)).expected for backward in (0, 1))
        self.assertGreater(backward, 2.4 * forward)
        wide, narrow, between = (predict(made("attention", 8, 16, 1024, width)).expected for width in (128, 64, 96))
        self.assertTrue(narrow < between < wide)

    def test_attention_within_steps_has_factors_of_its_own(self):
        for backward, factor in enumerate(H100.sustained_attention):
            record = made("attention", 64, 12, 1024, 64, bool(backward))
            self.assertAlmostEqual(predict(record).expected / predict(record, alone=True).expected, factor)

    def convolution(self, image, weight, result, which="forward"):
        size = 2 * (math.prod(image) + math.prod(weight) + math.prod(result))
        flops = 2.0 * math.prod(result) * math.prod(weight[1:])
        return predict(made("add", "convolution", **{"pass": which}, dtype="bf16", flops=flops, read_distinct=size, write_distinct=0,
                            shape={"image": image, "weight": weight, "result": result, "groups": 1}), alone=True)

    def test_a_convolution_is_a_product_of_its_channels(self):
        wide = self.convolution([256, 256, 14, 14], [256, 256, 3, 3], [256, 256, 14, 14])
        narrow = self.convolution([256, 64, 56, 56], [64, 64, 3, 3], [256, 64, 56, 56])
        few = self.convolution([256, 4, 56, 56], [64, 4, 3, 3], [256, 64, 56, 56])
        self.assertEqual(wide.flops, narrow.flops)
        self.assertGreater(narrow.expected, 1.3 * wide.expected)
        self.assertGreater(few.expected, 0.2 * narrow.expected)

    def test_a_convolution_with_strides_does_not_read_what_lies_between(self):
        whole = self.convolution([256, 256, 56, 56], [128, 256, 1, 1], [256, 128, 56, 56])
        strided = self.convolution([256, 256, 56, 56], [128, 256, 1, 1], [256, 128, 28, 28])
        self.assertAlmostEqual(strided.bytes / whole.bytes, 0.25, delta=0.01)

    def test_a_norm_and_a_convolution_have_wide_ranges(self):
        norm = predict(made("add", "cudnn", read_distinct=1 << 27, write_distinct=1 << 27))
        self.assertEqual(norm.bound, BANDWIDTH)
        wide = predict(made("add", "convolution", **{"pass": "forward"}, dtype="f16", shape={}, flops=1e12,
                            read_distinct=1 << 27, write_distinct=1 << 27))
        self.assertGreater(wide.high / wide.low, 2)


class Transfers(unittest.TestCase):
    def test_links_bind_copies(self):
        pinned, pageable, between = (predict(made("add", "copy", direction=direction, bytes=1 << 30, pinned=pinned))
                                     for direction, pinned in (("h2d", True), ("h2d", False), ("p2p", True)))
        self.assertEqual(pinned.bound, HOST_LINK)
        self.assertAlmostEqual((1 << 30) / pinned.expected / 1e3, 55.4, delta=0.5)
        self.assertGreater(pageable.expected, 4 * pinned.expected)
        self.assertEqual(between.bound, NETWORK)
        self.assertLess(between.expected, pinned.expected / 5)


class Network(unittest.TestCase):
    def choose(self, device, op, size, ranks, nodes=1):
        return network.choose(devices.load(device), op, size, network.Group(ranks, nodes))

    def test_algorithms_are_those_that_nccl_takes(self):
        for device, size, algorithm in (("h100", 1 << 10, "ring"), ("h100", 1 << 30, "nvls"),
                                        ("a100", 1 << 30, "ring")):
            self.assertEqual(self.choose(device, "AllReduce", size, 8).algorithm, algorithm)
        self.assertEqual(self.choose("h100", "AllReduce", 1 << 30, 16, 2).algorithm, "nvls_tree")

    def test_all_reduces_grow_with_the_logarithm_of_nodes_and_gathers_with_ranks(self):
        reduces, gathers = ([self.choose("h100", op, 25 << 20, 8 * nodes, nodes).microseconds for nodes in (16, 1024)]
                            for op in ("AllReduce", "AllGather"))
        self.assertLess(reduces[1], 1.5 * reduces[0])
        self.assertGreater(gathers[1], 15 * gathers[0])

    def test_a_rank_alone_exchanges_nothing(self):
        self.assertEqual(self.choose("h100", "AllReduce", 1 << 30, 1).algorithm, "none")

    def test_a_gather_counts_the_bytes_of_all_ranks(self):
        reduce, gather = (predict(made("collective", op, 1 << 26, 8), ranks=8) for op in ("AllReduce", "AllGather"))
        self.assertEqual(gather.bytes, 8 * reduce.bytes)
        self.assertEqual(reduce.bound, NETWORK)

    def test_communicators_of_a_node_stay_within_it(self):
        model = Model(H100, ranks=64, nodes=8)
        self.assertEqual((model.group_of(64).nodes, model.group_of(8).nodes, model.group_of(16).nodes), (8, 1, 2))
        with self.assertRaisesRegex(ValueError, "evenly"):
            Model(H100, ranks=10, nodes=4)
