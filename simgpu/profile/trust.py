"""How far predictions are from published measurements: by group, and each whole step."""

import dataclasses
import math
import statistics

import published

# What the table is held to (tests/test_trust.py): the median error of a group's held-out points.
LIMITS = {"products": 0.10, "steps of one GPU": 0.10, "steps of a node": 0.15, "growth with nodes": 0.05}
FURTHEST = 1.5
GROUPS = ("products", "attention", "norms", "elementwise", "all-reduce", "between nodes", "steps of one GPU",
          "steps of a node", "growth with nodes")


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
        for half, fitted in (("fitted on", True), ("held out", False)):
            line = group_line(group, [row for row in of_group if row.point.fitted_on == fitted], half)
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
                       f"{'fitted on' if row.point.fitted_on else 'held out'} | {row.point.why} |")
    return out


def points_markdown(table):
    """Each point of the other groups."""
    out = ["| group | device | what | published us | predicted us | error | half |", "|---|---|---|---|---|---|---|"]
    for row in table:
        if not row.point.series["group"].startswith("steps"):
            out.append(f"| {row.point.series['group']} | {row.point.series['device']} | {row.point.name} | "
                       f"{row.published:.1f} | {row.predicted:.1f} | {in_percent(row.error)} | "
                       f"{'fitted on' if row.point.fitted_on else 'held out'} |")
    return out


def far(table):
    """Rows beyond the factor that a row may be off without a reason."""
    return [row for row in table if row.factor > FURTHEST]
