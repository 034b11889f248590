"""Which part of a profile counts as the step: between two marks, by number or by name."""

import dataclasses
import re
import typing


@dataclasses.dataclass(frozen=True)
class Window:
    """Records from one id to before another; None where the profile begins or ends."""
    name: str
    begin: typing.Optional[int] = None
    end: typing.Optional[int] = None

    def holds(self, record):
        return ((self.begin is None or record["id"] >= self.begin)
                and (self.end is None or record["id"] < self.end))


def mark_named(profile, name, after=-1):
    """The first mark of a name that comes after an id."""
    for mark in profile.marks:
        if mark["name"] == name and mark["id"] > after:
            return mark
    raise ValueError(f"rank {profile.rank} has no mark '{name}': it has "
                     f"{', '.join(repr(mark['name']) for mark in profile.marks) or 'none'}")


def _steps(profile):
    """The marks where steps begin: "step", "step 3", "Train step 3"."""
    return [mark for mark in profile.marks if re.match(r"(?!end of )(.*\s)?step\b", mark["name"], re.IGNORECASE)]


def between(profile, first=None, last=None):
    """From one mark to another; either may be left out."""
    begin = mark_named(profile, first)["id"] if first else None
    end = mark_named(profile, last, -1 if begin is None else begin)["id"] if last else None
    return Window(f"{first or 'begin'} to {last or 'end'}", begin, end)


def warning(profile):
    """Why the last step of a profile may not be like those of a long run; empty if it may."""
    steps = len(_steps(profile))
    if steps == 0:
        return ("no step is marked: all of the profile counts; a program of one's own marks them by TraceRange range(\"step\"), "
                "and train::Step does")
    if steps < 3:
        return (f"only {steps} step{'s'[:steps - 1]} marked: the first ones get memory and choose plans; "
                "profile three or more")
    return ""


def last_step(profile):
    """The last step that has an end: from a mark "step" or "step N" to the next of them, or of the only one to its
    "end of step". The whole profile where there is none."""
    marks = _steps(profile)
    if len(marks) > 1:
        return Window(marks[-2]["name"], marks[-2]["id"], marks[-1]["id"])
    if not marks:
        return Window("all")
    ends = [mark["id"] for mark in profile.marks if mark["name"] == f"end of {marks[0]['name']}" and mark["id"] > marks[0]["id"]]
    return Window(marks[0]["name"], marks[0]["id"], ends[0] if ends else None)
