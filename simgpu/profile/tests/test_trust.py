"""Predictions are held to published measurements, and the table in the documentation to the predictions."""

import pathlib
import statistics
import unittest

import fit
import kernels
import published
import trust

DOCUMENT = pathlib.Path(__file__).resolve().parents[3] / "docs" / "performance-gpu.md"


class Trust(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.table = trust.rows()

    def test_points_that_were_held_out_are_met(self):
        for group, limit in trust.LIMITS.items():
            errors = [abs(row.error) for row in self.table
                      if row.point.series["group"] == group and row.point.fitted_on is not True]
            self.assertGreaterEqual(len(errors), 2)
            self.assertLessEqual(statistics.median(errors), limit, group)

    def test_what_is_far_off_has_a_reason(self):
        for row in trust.far(self.table):
            self.assertTrue(row.point.why, f"{row.point.name}: {row.factor:.2f} times off")

    def test_what_lockstep_measured_lies_in_the_range_or_has_a_reason(self):
        within_steps = published.Model(published.devices.load("h100"))
        for point in published.points():
            record = point.series["record"]
            if "us" in record and not point.why:
                found = within_steps.predict(record)
                self.assertGreaterEqual(record["us"], found.low, point.name)
                self.assertLessEqual(record["us"], found.high, point.name)

    def test_halves_are_chosen_by_the_rule(self):
        of_series = {}
        for point in published.points():
            of_series.setdefault(id(point.series), []).append(point.fitted_on)
        for halves in of_series.values():
            if len(halves) > 1:
                self.assertEqual(halves, [number % 2 == 0 for number in range(len(halves))])
        self.assertGreater(sum(point.fitted_on is False for point in published.points()), 200)

    def test_a_kernel_of_lockstep_is_in_one_half_in_all_steps(self):
        halves = {}
        for point in published.points():
            if "us" in point.series["record"]:
                record = point.series["record"]
                halves.setdefault((record["kind"], record["name"]), set()).add(point.fitted_on)
        self.assertTrue(all(len(half) == 1 for half in halves.values()))
        names = sorted(name for kind, name in halves if kind == "product")
        self.assertEqual([halves["product", name] for name in names], [{number % 2 == 0} for number in range(len(names))])

    def test_tables_of_attention_hold_only_points_for_fitting(self):
        for point in published.points():
            given = point.series["record"]
            if given.get("kind") != "attention" or "us" in given or point.fitted_on:
                continue
            device = published.devices.load(point.series["device"])
            for table in device.attention:
                if (table["width"], table["causal"], table["backward"]) == (given["width"], given["causal"],
                                                                            given["backward"]):
                    self.assertNotIn([point.at, point.published], table["teraflops_by_keys"])

    def test_constants_are_those_that_the_fit_gives(self):
        for key in ("a100", "h100"):
            device = published.devices.load(key)
            self.assertEqual(fit.products(key), (device.product_efficiency, device.product_floor_s), key)
            self.assertEqual((fit.sustained(key), fit.convolution(key)), (device.sustained_products, device.convolution_efficiency),
                             key)
        self.assertEqual(fit.attention_backward("h100"), published.devices.load("h100").sustained_attention[1])
        self.assertEqual(fit.of_kernels("h100"), (kernels.RESIDENT["expected"], kernels.EXCHANGING["expected"]))
        self.assertEqual(fit.stragglers(), published.devices.read("nccl")["stragglers"]["share_of_a_doubling"][1])
        for key, constants in published.devices.read("nccl")["fill_us"].items():
            self.assertEqual(fit.fill(key), tuple(constants.values()), key)

    def test_the_document_shows_the_table(self):
        document = DOCUMENT.read_text()
        for line in trust.tables_markdown(self.table):
            self.assertTrue(line in document, f"{line}: run simgpu/profile/sim_profile.py trust, and put its lines into "
                                          "docs/performance-gpu.md")
