#!/usr/bin/env python3
"""Predicts from a profile of the simulated GPU how fast the program would be on a real one.

    sim_profile.py report PROFILE... --device h100 [--from MARK --to MARK] [--trace OUT.json] [--svg OUT.svg]
    sim_profile.py check PROFILE 'launches<=260' 'mfu>=0.5' 'time/llm.c-124m<=0.95'     ends with 1 where a bar does not hold, and with 2 where there is nothing to hold against it
    sim_profile.py scale PROFILE --device h100 --ranks 8,64,1024 [--per-node 8]
    sim_profile.py compare PROFILE OTHER --device h100           OTHER: a profile, or a program's name
    sim_profile.py table 'GPT-2=gpt2.jsonl' 'Llama=two.jsonl,four.jsonl,7'    a row each; the last: seven times what the second has more
    sim_profile.py program llm.c-124m -o PROFILE [--ranks 8]     the profile of a program that others published
    sim_profile.py trust [--points | --fit]     published measurements beside what is predicted for them
    sim_profile.py devices [NAME]               what is known of a device, with sources
    sim_profile.py resources BUILD -o OUT       registers and spills of a build by nvcc, for report --resources OUT

PROFILE is what LOCKSTEP_SIM_PROFILE wrote; the files of other ranks beside it are found. Needs Python alone.
docs/performance-gpu.md says what is predicted, and how far to trust it.
"""

import argparse
import json
import math
import pathlib
import sys

import bars
import chrome_trace
import compare
import device as devices
import drawing
import fit
import job
import report
import resources
import scale
import table
import timeline
import trust
import window
from programs import catalogue


def window_of(arguments):
    """Which part of each rank's profile counts."""
    if arguments.first or arguments.last:
        return lambda profile: window.between(profile, arguments.first, arguments.last)
    return (lambda profile: window.Window("all")) if arguments.all else window.last_step


def options_of(arguments):
    return timeline.Options(arguments.host_scale, arguments.host_gap)


def predict(arguments, profiles, window_wanted):
    ranks = max(profile.ranks for profile in profiles)
    nodes = arguments.nodes or -(-ranks // arguments.per_node)
    return job.predict(profiles, devices.load(arguments.device), window_wanted, options_of(arguments), nodes,
                       arguments.efa)


def load_with_resources(arguments):
    profiles = job.load(arguments.profile)
    if arguments.resources:
        kernels = json.loads(arguments.resources.read_text())
        for profile in profiles:
            known, all_kernels = resources.join(profile, kernels)
        print(f"sim_profile.py: registers of {known} of {all_kernels} kernels are known", file=sys.stderr)
    return profiles


def make_report(arguments):
    profiles = load_with_resources(arguments)
    result = predict(arguments, profiles, window_of(arguments))
    warning = window.warning(profiles[0])
    if warning and not (arguments.all or arguments.first or arguments.last):
        print(f"sim_profile.py: {warning}", file=sys.stderr)
    print(report.text(result, arguments.rows, arguments.model_flops), end="")
    if arguments.trace:
        arguments.trace.write_text(json.dumps(chrome_trace.trace(result)))
    if arguments.svg:
        arguments.svg.write_text(drawing.page(result))


def make_comparison(arguments):
    if len(arguments.profile) != 2:
        raise ValueError("compare takes two profiles, or a profile and a program's name")
    first = job.load(arguments.profile[:1])
    one = predict(arguments, first, window_of(arguments))
    other = str(arguments.profile[1])
    if other in catalogue.PROGRAMS:
        two = predict_program(arguments, other, first)
    else:
        two = predict(arguments, job.load(arguments.profile[1:]), window_of(arguments))
    print(compare.text(one, two), end="")


def predict_program(arguments, name, beside):
    """A published program on as many ranks as the profiles beside it."""
    made = catalogue.make(name, max(profile.ranks for profile in beside)).profile()
    return predict(arguments, [made], window.last_step)


def check_bars(arguments):
    profiles = load_with_resources(arguments)
    result = predict(arguments, profiles, window_of(arguments))

    def result_of(name):
        if name not in catalogue.PROGRAMS:
            raise ValueError(f"no program '{name}': there are {', '.join(sorted(catalogue.PROGRAMS))}")
        return predict_program(arguments, name, profiles)

    lines, all_hold = bars.check(result, arguments.bars, result_of)
    print("\n".join(lines))
    if not all_hold:
        sys.exit(1)


def make_table(arguments):
    device = devices.load(arguments.device)
    rows = []
    for text in arguments.steps:
        name, _, words = text.partition("=")
        small, *more = words.split(",")
        if not small or len(more) not in (0, 2):
            raise ValueError(f"'{text}' is no step: NAME=PROFILE, or NAME=PROFILE,LARGER,TIMES")
        result = predict(arguments, job.load([pathlib.Path(small)]), window_of(arguments))
        figures = table.figures(result)
        if more:
            larger = predict(arguments, job.load([pathlib.Path(more[0])]), window_of(arguments))
            figures = table.grown(figures, table.figures(larger), float(more[1]))
        rows.append(table.row(name, figures, device.peak(result.slowest().rate)))
    print(table.text(rows), end="")


def make_scale(arguments):
    profile = job.load(arguments.profile)[0]
    device = devices.load(arguments.device)
    rows = []
    for ranks in arguments.ranks:
        nodes = -(-ranks // arguments.per_node)
        rows.append(scale.replay(profile, device, ranks, nodes, window_of(arguments), options_of(arguments),
                                 arguments.efa))
    print("\n".join(scale.table(rows)))


def make_trust(arguments):
    if arguments.fit:
        print("\n".join(fit.report()))
        return
    table = trust.rows()
    lines = trust.points_markdown(table) if arguments.points else trust.tables_markdown(table)
    print("\n".join(lines))


def write_program(arguments):
    recorder = catalogue.make(arguments.name, arguments.ranks)
    arguments.out.write_text("\n".join(recorder.lines()) + "\n")


def write_resources(arguments):
    kernels = resources.compile(arguments.build, arguments.architecture)
    arguments.out.write_text(json.dumps(kernels, indent=0, sort_keys=True) + "\n")
    spilling = sum(1 for kernel in kernels.values() if kernel["spills"])
    print(f"{len(kernels)} kernels, {spilling} of them spill registers")


def list_devices(arguments):
    for key in [arguments.name] if arguments.name else devices.names():
        device = devices.load(key)
        print(f"{key}: {device.name}; not known: {', '.join(device.not_known)}")
        if arguments.name:
            for name, (value, source, confidence) in device.numbers.items():
                print(f"  {name:28} {value!s:>12}  {confidence}  {source}")


def not_negative(text):
    value = float(text)
    if not (value >= 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text} is no time: give 0 or more")
    return value


def positive(text):
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def count(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of them: give 1 or more")
    return value


def counts(words):
    return [count(word) for word in words.split(",")]


def parser():
    whole = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = whole.add_subparsers(dest="command", required=True)
    for name, act, help_of in (("report", make_report, "the step, where its time goes and what costs most"),
                               ("compare", make_comparison, "two profiles side by side"),
                               ("check", check_bars, "a step against bars, such as launches<=260"),
                               ("table", make_table, "steps, a row each"),
                               ("scale", make_scale, "the same step in jobs of more ranks")):
        command = commands.add_parser(name, help=help_of)
        command.set_defaults(act=act)
        if name == "check":
            command.add_argument("profile", nargs=1, type=pathlib.Path)
            command.add_argument("bars", nargs="+", help=", ".join(f"{key}: {what}" for key, (what, _) in bars.FIGURES.items()))
        elif name == "table":
            command.add_argument("steps", nargs="+", metavar="NAME=PROFILE[,LARGER,TIMES]")
        else:
            command.add_argument("profile", nargs="+", type=pathlib.Path)
        command.add_argument("--device", default="h100", choices=devices.names(), help="default: h100")
        command.add_argument("--from", dest="first", help="the mark with which the step begins")
        command.add_argument("--to", dest="last", help="the mark with which it ends")
        command.add_argument("--all", action="store_true", help="the whole profile; default: its last whole step")
        command.add_argument("--host-scale", type=not_negative, default=1.0,
                             help="how many times slower the real host is than the one that ran the simulation")
        command.add_argument("--host-gap", type=not_negative, help="microseconds of the host's own work before each call, "
                                                            "instead of what was measured")
        command.add_argument("--efa", action="store_true", help="nodes are connected by EFA")
        command.add_argument("--per-node", type=count, default=8, help="GPUs of a node; default: 8")
        command.add_argument("--nodes", type=count, help="over which the ranks are spread; default: as few as hold them")
    commands.choices["report"].add_argument("--rows", type=int, default=20, help="of what costs most")
    commands.choices["report"].add_argument("--model-flops", type=positive, help="of a step and rank, for the MFU; default: of all library calls")
    for name in ("report", "check"):
        commands.choices[name].add_argument("--resources", type=pathlib.Path, help="what `resources` wrote")
    commands.choices["report"].add_argument("--trace", type=pathlib.Path, help="a Chrome trace of the step")
    commands.choices["report"].add_argument("--svg", type=pathlib.Path, help="a drawing of the step")
    commands.choices["scale"].add_argument("--ranks", type=counts, default=[8, 64, 512, 4096],
                                           help="jobs of how many; default: 8,64,512,4096")
    command = commands.add_parser("trust", help="published measurements beside predictions")
    command.set_defaults(act=make_trust)
    command.add_argument("--points", action="store_true", help="each point, not groups and steps")
    command.add_argument("--fit", action="store_true", help="fit the constants that no source gives")
    command = commands.add_parser("program", help="write the profile of a published program")
    command.set_defaults(act=write_program)
    command.add_argument("name", choices=sorted(catalogue.PROGRAMS))
    command.add_argument("-o", "--out", type=pathlib.Path, required=True)
    command.add_argument("--ranks", type=count, default=1)
    command = commands.add_parser("resources", help="registers and spills of kernels, by nvcc")
    command.set_defaults(act=write_resources)
    command.add_argument("build", type=pathlib.Path, help="the folder of a build with LOCKSTEP_CUDA=ON")
    command.add_argument("-o", "--out", type=pathlib.Path, required=True)
    command.add_argument("--architecture", default="sm_90")
    command = commands.add_parser("devices", help="what is known of devices")
    command.set_defaults(act=list_devices)
    command.add_argument("name", nargs="?")
    return whole


def main():
    arguments = parser().parse_args()
    try:
        arguments.act(arguments)
    except (OSError, ValueError) as error:
        what = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        print(f"sim_profile.py: {what}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
