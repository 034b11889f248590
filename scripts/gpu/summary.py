"""What a check found, in words."""


def number(value, digits=3):
    return "-" if value is None else f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def head(check):
    yield f"gpu_check: {', '.join(check.gpus) or 'no CUDA device'}"
    for entry in check.results.of("machine"):
        if "driver" in entry:
            yield f"  driver {entry['driver']['driver_version']}, SM clock at most {entry['driver']['clocks.max.sm']}"
        if "bundle" in entry:
            yield f"  bundle of {entry['bundle']['commit']}, {entry['bundle']['compiler']}, {entry['bundle']['architectures']}"
        if "missing" in entry:
            yield f"  not on this machine: {entry['missing']} ({entry['library']})"
        if "starts" in entry:
            bad = ", ".join(program["program"] for program in entry["programs_that_do_not"])
            yield "  all programs start" if entry["starts"] else f"  programs that do not start: {bad}"


def ceilings(check):
    for entry in check.results.of("ceilings"):
        rate = (f"{number(entry['tflops'])} TFLOP/s" if "tflops" in entry else f"{number(entry['gb_per_s'], 4)} GB/s"
                if "gb_per_s" in entry else f"{number(entry['us_queued'])} us queued, {number(entry['us_with_wait'])} us with a wait"
                if "us_queued" in entry else None)
        if rate:
            yield f"  {entry['case']} {entry.get('dtype', '')}: {rate}"


def tests(check):
    for stage in ("tests", "ranks"):
        ran = [entry for entry in check.results.of(stage) if "program" in entry]
        if not ran:
            continue
        failed = [f"{entry['program']} {name}" for entry in ran for name in entry["failed"]]
        late = [entry["program"] for entry in ran if entry["ended"] != "done"]
        yield (f"  {stage}: {sum(entry['passed'] for entry in ran)} passed, {len(failed)} failed, "
               f"{sum(entry['skipped'] for entry in ran)} skipped" + (f"; not finished: {', '.join(late)}" if late else ""))
        yield from (f"    failed: {name}" for name in failed[:20])


def jobs(check):
    ran = [entry for entry in check.results.of("jobs") if "job" in entry and "ended" in entry]
    if ran:
        wrong = [entry for entry in ran if entry["wrong"] or entry["ended"] != "exit code 0"]
        yield f"  {len(ran) - len(wrong)} of {len(ran)} trainings went as they should"
        yield from (f"    {entry['job']}: {entry['wrong'] or entry['ended']}" for entry in wrong)


def parity(check):
    for entry in check.results.of("parity"):
        if "ended" in entry:
            yield f"  a training run beside PyTorch's: {entry['ended']}"


def twins(check):
    for entry in check.results.of("twins"):
        if "gpu" in entry:
            yield (f"  {entry['model']} {entry['options']}: losses {', '.join(number(loss, 5) for loss in entry['gpu'])}, "
                   f"on the CPU {', '.join(number(loss, 5) for loss in entry['cpu'])}")


def steps(check):
    ran = [entry for entry in check.results.of("steps") if "ms_median" in entry]
    best = {}
    for entry in ran:
        if entry["program"] == "lockstep":
            key = entry["model"], entry["dtype"], entry["batch"]
            best[key] = min(best.get(key, entry["ms_median"]), entry["ms_median"])
    for entry in ran:
        ours = best.get((entry["model"], entry["dtype"], entry["batch"]))
        beside = f", {entry['ms_median'] / ours:.2f} of lockstep's best" if ours and entry["program"] != "lockstep" else ""
        yield (f"  {entry['model']} in {entry['dtype']}, batch {entry['batch']}, {entry['program']} {entry['way']}: "
               f"{number(entry['ms_median'], 4)} ms{beside}")


def choices(check):
    for entry in check.results.of("choices"):
        if "ms_median" in entry:
            words = ", ".join(f"{name}={value}" for name, value in entry["choice"].items()) or "as they are"
            yield f"  {entry['model']} in {entry['dtype']}, {words}: {number(entry['ms_median'], 4)} ms"


def saves(check):
    for entry in check.results.of("saves"):
        if "ms_mean" in entry:
            yield (f"  {entry['way']}: {number(entry['ms_median'], 4)} ms a step, {number(entry['ms_mean'], 4)} on average, "
                   f"at most {number(entry['ms_max'], 4)}")


def launches(check):
    for entry in check.results.of("launches"):
        if "step_us" in entry:
            of_it = f", of which its {entry['kernels']} kernels {number(entry['kernels_us'], 4)} us" if "kernels" in entry else ""
            yield f"  a small step {entry['way']}: {number(entry['step_us'], 4)} us{of_it}"


def sanitizer(check):
    ran = [entry for entry in check.results.of("sanitizer") if "tool" in entry]
    for tool in dict.fromkeys(entry["tool"] for entry in ran):
        of_it = [entry for entry in ran if entry["tool"] == tool]
        late = sum(entry["ended"].startswith("cut off") for entry in of_it)
        yield (f"  {tool}: {sum(entry['tests'] for entry in of_it)} tests passed, {sum(len(entry['findings']) for entry in of_it)} findings"
               + (f", {late} of {len(of_it)} parts not finished" if late else ""))


def kernels(check):
    for entry in check.results.of("kernels"):
        if entry.get("what") == "all":
            yield (f"  {entry['model']} in {entry['dtype']}: kernels and products {number(entry['measured_us'] / 1e3, 4)} ms, predicted "
                   f"{number(entry['predicted_us'] / 1e3, 4)} ms for {entry['device']}")
            yield from helpers(check, entry["model"], entry["dtype"])
    rows = [entry for entry in check.results.of("kernels") if "measured_of_predicted" in entry]
    for entry in sorted(rows, key=lambda row: -abs(row["measured_us"] - row["predicted_us"]))[:10]:
        yield (f"    {entry['measured_of_predicted']} of predicted, {number(entry['measured_us'] / 1e3)} ms in "
               f"{entry['times']}: {entry['what']}")


def helpers(check, model, dtype):
    """What the libraries' separate kernels took of a step: of it the largest by name."""
    found = [entry for entry in check.results.of("kernels") if entry.get("kind") == "helper"
             and (entry["model"], entry["dtype"]) == (model, dtype)]
    if found:
        largest = ", ".join(f"{number(entry['measured_us'] / 1e3)} ms {entry['what']}" for entry in found[:3])
        yield f"    of it separate helper kernels of libraries {number(sum(entry['measured_us'] for entry in found) / 1e3)} ms: {largest}"


def left_out(check):
    for entry in check.results.entries:
        if "skipped" in entry and "benchmark" not in entry and isinstance(entry["skipped"], str):
            yield f"  left out, {entry['stage']}: {entry['skipped']}"


def text(check):
    """The lines of the summary."""
    parts = (("Ceilings", ceilings), ("Tests", tests), ("Jobs", jobs), ("Parity", parity), ("Training beside the CPU", twins), ("Steps", steps),
             ("Launches", launches), ("Choices", choices), ("Checkpoints", saves), ("Predicted and measured", kernels), ("Sanitizer", sanitizer), ("Left out", left_out))
    lines = list(head(check))
    for title, part in parts:
        found = list(part(check))
        if found:
            lines += [title, *found]
    lines += [f"FAILED: {what}" for what in check.failures]
    if check.gpus and not check.failures:
        late = any(str(entry.get("ended", "")).startswith("cut off") for entry in check.results.entries)
        if any("Simulated" in gpu for gpu in check.gpus):
            return [*lines, "Nothing failed. This was the simulated GPU: docs/gpu-unverified.md stays as it is."]
        if not any(entry.get("name") != "machine" for entry in check.results.of("stage")):
            return [*lines, "No stage ran: no time was left for any."]
        lines.append("Nothing failed" + (", but not all was done in time" if late else "") + ". Take what this covered out of "
                     "docs/gpu-unverified.md, and keep this folder in benchmarks/results.")
    return lines
