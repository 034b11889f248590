"""How far predictions are from published measurements: by group, and each whole step."""

import dataclasses
import math
import statistics

import measured
import published

# What the table is held to (tests/test_trust.py): the median error of a group's held-out points.
LIMITS = {"products": 0.10, "steps of one GPU": 0.10, "steps of a node": 0.15, "growth with nodes": 0.05,
          "products of lockstep": 0.10, "attention of lockstep": 0.15, "convolutions of lockstep": 0.15, "kernels of lockstep": 0.15,
          "small kernels of lockstep": 0.25, "steps of lockstep": 0.05}
FURTHEST = 1.5
KINDS = {"product": "products", "attention": "attention", "convolution": "convolutions", "kernel": "kernels"}
MOST_MISSES = 12
HALVES = {True: "fitted on", False: "held out", None: "of both halves"}
GROUPS = ("products", "attention", "norms", "elementwise", "all-reduce", "between nodes", "steps of one GPU",
          "steps of a node", "growth with nodes", *measured.GROUPS.values(), measured.SMALL_KERNELS, measured.STEPS)


@dataclasses.dataclass(frozen=True)
class Row:
    """A published figure beside its prediction, in microseconds."""
    point: published.Point
    published: float
    predicted: float

    @property
    def error(self):
        """Of the prediction, of the published time: -0.1 is 10 % too fast."""
        return self.predicted / self.published - 1

    @property
    def factor(self):
        return math.exp(abs(math.log(self.predicted / self.published)))


def rows():
    """All points, predicted."""
    return [Row(point, published.published_microseconds(point), published.microseconds(point))
            for point in published.points()]


def group_line(name, rows_of, half):
    """Number, median of |error|, its 90th percentile, the largest, and the median with its sign."""
    errors = sorted(abs(row.error) for row in rows_of)
    if not errors:
        return None
    worst = max(rows_of, key=lambda row: row.factor)
    return (name, half, len(errors), statistics.median(errors), errors[math.ceil(0.9 * len(errors)) - 1],
            statistics.median(row.error for row in rows_of), worst)


def summary(table):
    """A line for each group and half."""
    lines = []
    for group in GROUPS:
        of_group = [row for row in table if row.point.series["group"] == group]
        for half_of, half in HALVES.items():
            line = group_line(group, [row for row in of_group if row.point.fitted_on == half_of], half)
            lines += [line] if line else []
    return lines


def in_percent(error):
    return f"{100 * error:+.0f} %"


def summary_markdown(table):
    """The summary as the documentation has it."""
    out = ["| group | half | points | median of the error's size | of 9 in 10 below | median, signed | furthest |",
           "|---|---|---|---|---|---|---|"]
    for group, half, count, median, most, signed, worst in summary(table):
        out.append(f"| {group} | {half} | {count} | {100 * median:.0f} % | {100 * most:.0f} % | {in_percent(signed)} | "
                   f"{worst.point.series['device']} {worst.point.name}: {in_percent(worst.error)} |")
    return out


def steps_markdown(table):
    """Each whole step."""
    out = ["| step | device | published ms | predicted ms | error | half | what is known of the miss |",
           "|---|---|---|---|---|---|---|"]
    for row in table:
        if row.point.series["group"].startswith("steps"):
            out.append(f"| {row.point.series['id']} | {row.point.series['device']} | {row.published / 1e3:.1f} | "
                       f"{row.predicted / 1e3:.1f} | {in_percent(row.error)} | "
                       f"{HALVES[row.point.fitted_on]} | {row.point.why} |")
    return out


def points_markdown(table):
    """Each point of the other groups."""
    out = ["| group | device | what | published us | predicted us | error | half |", "|---|---|---|---|---|---|---|"]
    for row in table:
        if not row.point.series["group"].startswith("steps"):
            out.append(f"| {row.point.series['group']} | {row.point.series['device']} | {row.point.name} | "
                       f"{row.published:.1f} | {row.predicted:.1f} | {in_percent(row.error)} | "
                       f"{HALVES[row.point.fitted_on]} |")
    return out


def far(table):
    """Rows beyond the factor that a row may be off without a reason."""
    return [row for row in table if row.factor > FURTHEST]


def of_lockstep(table):
    """Rows of lockstep's steps by (step, kind of work)."""
    found = {}
    for row in table:
        record = row.point.series["record"]
        if "us" in record:
            found.setdefault((record["step"], record["kind"]), []).append(row)
    return found


def milliseconds(rows_of):
    """(measured, predicted) of a step's rows together."""
    times = [(row.point.series["record"]["times"], row) for row in rows_of]
    return (sum(count * row.published for count, row in times) / 1e3, sum(count * row.predicted for count, row in times) / 1e3)


def kinds_markdown(table):
    """What lockstep's steps are made of: measured, and predicted."""
    found = of_lockstep(table)
    out = [f"| step, measured (predicted) ms | {' | '.join(KINDS.values())} | all |", "|---" * (len(KINDS) + 2) + "|"]
    for step in sorted({step for step, _ in found}):
        cells = [found.get((step, kind), []) for kind in KINDS]
        cells.append([row for cell in cells for row in cell])
        out.append(f"| {step} | {' | '.join('%.1f (%.1f)' % milliseconds(cell) if cell else '' for cell in cells)} |")
    return out


def misses_markdown(table):
    """Kernels and calls of lockstep's steps by how far off they are, in milliseconds of a step."""
    names = {}
    for (step, _), rows_of in of_lockstep(table).items():
        for row in rows_of:
            names.setdefault((step, row.point.series["record"]["name"]), []).append(row)
    found = [(*milliseconds(rows_of), step, name, rows_of[0].point) for (step, name), rows_of in names.items()]
    found.sort(key=lambda entry: -abs(entry[0] - entry[1]))
    out = ["| kernel or call | step | measured ms | predicted ms | half | what is known of the miss |", "|---|---|---|---|---|---|"]
    return out + [f"| `{name}` | {step} | {measured_ms:.2f} | {predicted:.2f} | {HALVES[point.fitted_on]} | {point.why} |"
                  for measured_ms, predicted, step, name, point in found[:MOST_MISSES]]


def tables_markdown(table):
    """All tables that the documentation has."""
    return [*summary_markdown(table), "", *steps_markdown(table), "", *kinds_markdown(table), "", *misses_markdown(table)]
