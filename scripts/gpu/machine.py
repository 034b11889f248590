"""First stages: what the machine is, whether the programs start, what the GPU can do at most."""

import concurrent.futures
import os
import re
import shutil
import subprocess

import place as places

ASKED = ("name", "driver_version", "memory.total", "compute_cap", "clocks.sm", "clocks.max.sm", "clocks.mem",
         "clocks.max.mem", "power.limit", "temperature.gpu", "ecc.mode.current", "pcie.link.gen.current",
         "pcie.link.width.current")


def ask_driver(check):
    """What nvidia-smi says, a line a GPU."""
    if not shutil.which("nvidia-smi"):
        check.results.add("machine", skipped="nvidia-smi is not on this machine")
        return
    answer = check.run(["nvidia-smi", f"--query-gpu={','.join(ASKED)}", "--format=csv,noheader"], 10)
    for line in answer.lines if answer.is_good else ():
        check.results.add("machine", driver=dict(zip(ASKED, (word.strip() for word in line.split(",")))))
    check.run(["nvidia-smi", "topo", "-m"], 10)
    check.run(["nvidia-smi", "nvlink", "--status"], 10)


def tell_libraries(check):
    """Which of NVIDIA's libraries are used, and which are missing, by name."""
    place = check.place
    if place.bundle:
        check.results.add("machine", bundle=place.bundle, libraries=place.libraries)
    for library in place.missing:
        name = places.name_of(library)
        check.results.add("machine", missing=name, library=library)
        check.results.say(f"{name} ({library}) is not on this machine; what needs it is reported as failed or left out")


HAVE_HELP = ("lockstep_run", "train_gpt", "train_mnist", "train_resnet", "benchmark_allreduce")


def programs_start(check):
    """Each program once, for its list of tests or its usage: are all libraries there?"""
    def start(path):
        option = "--help" if path.name in HAVE_HELP else "--gtest_list_tests"
        answer = check.run([path, option], 30, logged=False)
        return None if answer.is_good else {"program": path.name, "why": answer.words, "said": answer.lines[-1:]}

    programs = [path for path in sorted(check.place.programs.glob("*"))
                if path.name.startswith("test_") or path.name in HAVE_HELP]
    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        bad = [found for found in pool.map(start, programs) if found]
    check.results.add("machine", starts=not bad, programs_that_do_not=bad)
    for entry in bad:
        check.results.say(f"{entry['program']} does not start: {entry['why']}, {' '.join(entry['said'])}")


def gpus(check):
    """The GPUs that the library itself sees; [] where there are none."""
    program = check.place.program("lockstep_info")
    if not program:
        check.results.add("machine", failed="lockstep_info was not built")
        return []
    answer = check.run([program], 60)
    said = dict(re.findall(r"^  ([\w -]+): (.*)$", "\n".join(answer.lines), re.M))
    found = said.get("GPUs", "none")
    check.results.add("machine", lockstep_info=said, ended=answer.words)
    return [] if found == "none" or not answer.is_good else re.findall(r"[^,]+, [^,]*free of[^,]*", found)


def machine(check):
    tell_libraries(check)
    ask_driver(check)
    programs_start(check)


def ceilings(check):
    """Copy, links, products and launches."""
    program = check.place.program("benchmark_ceilings")
    if not program:
        check.skip("ceilings", "benchmark_ceilings was not built")
        return
    answer = check.run([program, "--json", *(["--small"] if check.quick else [])], check.left())
    for line in answer.json_lines():
        check.results.add("ceilings", **line)
    if not answer.is_good:
        check.fail("ceilings", f"benchmark_ceilings: {answer.words}", answer)


def describe(check):
    """cuDNN's description of this GPU, by which CI asks for its plans."""
    program = check.place.program("describe_gpu")
    if not program:
        check.skip("describe", "describe_gpu was not built: it needs cuDNN's headers")
        return
    answer = subprocess.run([program], env=check.place.environment, capture_output=True, text=True, check=False,
                            timeout=check.left(), errors="replace")
    if answer.returncode:
        check.fail("describe", f"describe_gpu: {answer.stderr.strip()}")
        return
    name = re.sub(r"[^A-Za-z0-9]+", "-", answer.stdout.splitlines()[0]).strip("-")
    (check.results.folder / f"{name}.cudnn").write_text(answer.stdout, encoding="utf-8")
    check.results.add("describe", file=f"{name}.cudnn", belongs_to="tests/data/gpus")
