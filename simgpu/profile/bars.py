"""Bars that a step is held against: "launches<=260", "mfu>=0.5", "time/llm.c-124m<=0.95"."""

import re

import report

BAR = re.compile(r"\s*([a-z_]+)(?:/([\w.-]+))?\s*(<=|>=)\s*([-+.\deE]+)\s*")


def large_kernels(step):
    """Records of the kernels that together take a hundredth of the step, each."""
    times = {}
    for piece in step.work:
        if piece.record["kind"] == "kernel":
            times[piece.record["name"]] = times.get(piece.record["name"], 0.0) + piece.duration
    return [piece.record for piece in step.work
            if piece.record["kind"] == "kernel" and times[piece.record["name"]] >= report.LARGE_KERNEL * step.time]


def worst(step, part, whole):
    """The largest ratio of two counts of a large kernel."""
    records = measured(step, "requests", "what its threads touch: profile with LOCKSTEP_SIM_EXECUTE=all or sample, "
                                         "without LOCKSTEP_SIM_WATCH=0")
    return max(report.ratio(record, part, whole) for record in records)


def most_spills(step):
    return max(record["spills"] or 0 for record in measured(step, "registers", "its registers: give --resources of this build"))


def measured(step, count, what):
    """The large kernels. Raises ValueError unless there are any, and all have a count: no bar holds unseen."""
    records = large_kernels(step)
    if not records:
        raise ValueError("no kernel takes a hundredth of the step, so none can be held against a bar")
    for record in records:
        if not record.get(count):
            raise ValueError(f"nothing can be said of {record['name']}: the profile does not have {what}")
    return records


def bytes_of(step, kinds):
    return sum(piece.prediction.bytes for piece in step.work if piece.record["kind"] in kinds)


FIGURES = {
    "time": ("milliseconds of the step", lambda step, peak: step.time / 1e3),
    "mfu": ("FLOPs over the peak of the time", lambda step, peak: step.utilisation(peak)),
    "launches": ("calls that put work on the device", lambda step, peak: step.launches),
    "waits": ("waits of the host for the device", lambda step, peak: sum(times for times, _ in step.waits.values())),
    "bytes": ("bytes through the device's memory", lambda step, peak: step.bytes),
    "kernel_bytes": ("of them those of kernels and fills, not of products, attention and convolutions",
                     lambda step, peak: bytes_of(step, {"kernel", "memset", "cudnn"})),
    "exposed": ("milliseconds of exposed exchange", lambda step, peak: step.exposed / 1e3),
    "idle": ("milliseconds in which the device does nothing", lambda step, peak: step.idle / 1e3),
    "sectors": ("sectors over the least, of the worst kernel that takes a hundredth of the step",
                lambda step, peak: worst(step, "sectors", "ideal_sectors")),
    "conflicts": ("passes over shared memory over the least, of the worst such kernel",
                  lambda step, peak: worst(step, "shared_wavefronts", "shared_requests")),
    "spills": ("bytes of spilled registers of the worst such kernel (with --resources)",
               lambda step, peak: most_spills(step)),
}


def figure(result, name):
    step = result.slowest()
    if not step.work:
        raise ValueError(f"the step that was to be held against '{name}' has no work on the device")
    return FIGURES[name][1](step, result.device.peak(step.rate))


def parse(text):
    """(name, program or None, whether it is a most, value) of a bar."""
    found = BAR.fullmatch(text)
    if not found or found[1] not in FIGURES:
        raise ValueError(f"'{text}' is no bar such as launches<=260, mfu>=0.5 or time/llm.c-124m<=0.95; figures: "
                         f"{', '.join(FIGURES)}")
    return found[1], found[2], found[3] == "<=", float(found[4])


def check(result, bars, result_of):
    """(lines, whether all hold). `result_of` gives the result of a program by name."""
    lines, all_hold = [], True
    for text in bars:
        name, program, is_most, limit = parse(text)
        value = figure(result, name)
        if program:
            value /= figure(result_of(program), name)
        holds = value <= limit if is_most else value >= limit
        all_hold &= holds
        lines.append(f"{'holds' if holds else 'FAILS':6} {text.strip():32} {value:.4g}")
    return lines, all_hold
