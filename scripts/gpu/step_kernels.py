"""Where a step's time goes: its kernels as the GPU timed them, beside what is predicted, and what they move through DRAM."""

import csv

import re

import kernel_comparison
import steps

LIBRARY = "libkernel_times.so"


def profile_of(check, model, dtype):
    """The step as it was recorded on the simulated GPU."""
    found = sorted((check.place.root / "profiles").glob(f"{model}-{dtype}-{steps.batch_of(check, model)}.jsonl*"))
    return found[0] if found else None


def trace(check, model, dtype, options=None, name=None):
    """Times of all that three steps run, or those of the options: the file, or None."""
    program = check.place.program("benchmark_model_step")
    home = check.place.programs.parent
    libraries = [path for path in (home / "lib" / LIBRARY, home / "benchmarks" / LIBRARY) if path.exists()]
    if not program or not libraries:
        missing = "kernel_times (it needs CUPTI)" if program else "benchmark_model_step"
        check.skip("kernels", f"{model}: {missing} was not built")
        return None
    options = options or steps.sizes(check, model, 3)
    file = check.results.folder / f"times-{name or f'{model}-{dtype}'}.jsonl"
    environment = {**check.place.environment, "CUDA_INJECTION64_PATH": str(libraries[0]), "KERNEL_TIMES": str(file)}
    answer = check.run([program, "--device", "cuda", *options, "--dtype", dtype], check.left(), environment)
    if answer.is_good and file.exists() and file.stat().st_size:
        return file
    check.fail("kernels", f"{model}: no kernel was recorded; {answer.words}", answer)
    return None


def compare(check):
    """Each kernel and product of a step: predicted, and as the GPU itself timed it."""
    for model, dtype in steps.RUNS[:1] if check.quick else steps.RUNS:
        file = trace(check, model, dtype)
        if not file:
            continue
        times = kernel_comparison.read_times(file)
        busy = sum(entry["us"] for entry in times)
        check.results.add("kernels", model=model, dtype=dtype, recorded=len(times), busy_us=round(busy, 1))
        profile, device = profile_of(check, model, dtype), kernel_comparison.device_of(check.gpus[0])
        if not profile:
            check.skip("kernels", f"{model} in {dtype}: no step was recorded for a batch of {steps.batch_of(check, model)}")
            continue
        if not device:
            check.skip("kernels", f"{model}: no device file like {check.gpus[0]}")
            continue
        add_comparison(check, {"model": model, "dtype": dtype}, kernel_comparison.read_profile(profile), times, device)


END_OF_STEP = "update_kernel"


def last_step(times):
    """What ran since the update of the step before the last one."""
    ends = [place for place, entry in enumerate(times) if END_OF_STEP in entry.get("name", "")]
    return times[ends[-2] + 1:ends[-1] + 1] if len(ends) > 1 else []


def launches(check):
    """What launches cost: a small step beside the sum of its kernels' times, eager and captured."""
    program = check.place.program("benchmark_model_step")
    if not program:
        check.skip("launches", "benchmark_model_step was not built")
        return
    for way, dtype, more in (("eager", "bf16", ()), ("captured", "bf16", ("--capture",)), ("eager, autocast", "autocast", ())):
        options = [*steps.SMALL_STEP, *more, *(["--small"] if check.quick else [])]
        answer = check.run([program, "--device", "cuda", *options, "--dtype", dtype], check.left())
        whole = steps.summary_of(answer.json_lines())
        if not whole:
            check.fail("launches", f"{way}: {answer.words}", answer)
            continue
        file = trace(check, "gpt2", dtype, options, f"small-{way.replace(', ', '-')}")
        if not file:
            continue  # said by it
        ran = last_step(kernel_comparison.read_times(file))
        check.results.add("launches", way=way, step_us=round(1e3 * whole["ms_median"], 1), kernels=len(ran),
                          kernels_us=round(sum(entry["us"] for entry in ran), 1))
        file.unlink()


def add_comparison(check, step_name, profile, times, device):
    step = kernel_comparison.predicted_step(profile, kernel_comparison.devices.load(device))
    rows, words = kernel_comparison.compare(step, times)
    for line in kernel_comparison.lines_of(rows):
        check.results.add("kernels", **step_name, device=device, **line)
    for word in sorted(set(words)):
        check.results.add("kernels", **step_name, note=word, times=words.count(word))
    check.results.add("kernels", **step_name, device=device, what="all", predicted_step_us=round(step.time, 1),
                      predicted_us=round(sum(row.predicted for row in rows.values()), 1),
                      measured_us=round(sum(row.measured for row in rows.values()), 1))


METRICS = ("gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum")


# Microseconds and bytes of ncu's units, in the words of its older and newer versions.
UNITS = {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1.0, "us": 1.0, "msecond": 1e3, "ms": 1e3,
         "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def bytes_of(lines):
    """{kernel: [launches, microseconds, bytes]} of what ncu wrote as CSV."""
    found = {}
    for row in csv.DictReader(line for line in lines if line.startswith('"')):
        entry = found.setdefault(kernel_comparison.base_name(row["Kernel Name"]), [0, 0.0, 0.0])
        value = float(row["Metric Value"].replace(",", "")) * UNITS.get(row["Metric Unit"], 1.0)
        if row["Metric Name"] == METRICS[0]:
            entry[0] += 1
            entry[1] += value
        else:
            entry[2] += value
    return found


# Of a user without the right to read counters, as in most containers, and of machines that have none for ncu.
NOT_ALLOWED = re.compile(r"NVGPUCTRPERM|Failed to initialize the profiler|No kernels were profiled|LibraryNotLoaded")


def dram(check):
    """Bytes through DRAM of the kernels of one step, by ncu's counters."""
    tool, program = check.find_tool("ncu"), check.place.program("benchmark_model_step")
    file = check.results.folder / "times-gpt2-bf16.jsonl"
    if not tool or not program or not file.exists():
        check.skip("dram", "ncu is not on this machine" if not tool else "no kernel of a step was recorded before")
        return
    launches = sum(entry["kind"] == "kernel" for entry in kernel_comparison.read_times(file))
    one_step = launches // 3
    command = [tool, "--csv", "--print-units", "base", "--metrics", ",".join(METRICS), "--clock-control", "none",
               "--cache-control", "none", "--launch-skip", launches - one_step, "--launch-count", one_step]
    answer = check.run([*command, program, "--device", "cuda", *steps.sizes(check, "gpt2", 3), "--dtype", "bf16"], check.left())
    refused = next((line for line in answer.lines if NOT_ALLOWED.search(line)), None)
    if refused:
        check.skip("dram", f"ncu may not read counters here: {refused.strip('= ')}")
        return
    found = bytes_of(answer.lines)
    for name, (times, microseconds, moved) in sorted(found.items(), key=lambda item: -item[1][2]):
        check.results.add("dram", model="gpt2", kernel=name, times=times, us=round(microseconds, 1), bytes=int(moved))
    if not found:
        check.fail("dram", f"ncu read nothing: {answer.words}", answer)
