"""A profiled job as a whole: its files, the model, the timelines in three cases, and the step that is asked for."""

import dataclasses

import measures
import records
import timeline as timelines
import window as windows
from model import Model


@dataclasses.dataclass
class Result:
    """A step in three cases, one entry a rank in each."""
    device: object
    program: str
    window: object
    steps: dict
    timelines: dict

    @property
    def title(self):
        """What was predicted: "train_gpt, step 7"."""
        return self.program + (f", {self.window.name}" if self.window.name != "all" else "")

    def limits(self):
        """(least, most) time of the step of the three cases. What is queued at its beginning differs, too."""
        times = [self.slowest(case).time for case in timelines.CASES]
        return min(times), max(times)

    def slowest(self, case="expected"):
        return max(self.steps[case], key=lambda step: step.time)


def load(paths):
    """The profiles of a job. One path stands for all ranks' files beside it."""
    files = records.rank_files(paths[0]) if len(paths) == 1 else paths
    return sorted((records.read(path) for path in files), key=lambda profile: profile.rank)


def predict(profiles, device, window_of=windows.last_step, options=timelines.Options(), nodes=1, efa=False):
    """The Result of profiles of one job, whose ranks are spread over so many nodes."""
    ranks = max(profile.ranks for profile in profiles)
    model = Model(device, ranks, nodes, efa)
    made, steps = {}, {}
    for case in timelines.CASES:
        made[case] = timelines.of(profiles, model, options, case)
        steps[case] = [measures.step_of(made[case], profile.rank, window_of(profile)) for profile in profiles]
    return Result(device, profiles[0].header.get("program", "program"), window_of(profiles[0]), steps, made)


def time_of(recorder, device, nodes=1):
    """The expected time in microseconds of records that were made here, from the first call to the last end."""
    profile = recorder.profile()
    timeline = timelines.of([profile], Model(device, profile.ranks, nodes))
    return max(placed.end for placed in timeline.placed)
