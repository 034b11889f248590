"""The library's kernels under compute-sanitizer."""

import concurrent.futures
import re

from gpu_tests import ON_GPU, SLOW

# (tool of compute-sanitizer, program, its tests, among how many processes)
# Racecheck ends with an internal error of its own where the libraries' products, convolutions and attention run on Hopper, also where it is
# kept to other kernels.
WITHOUT_LIBRARIES = "*/cuda*-*ConvolutionContract*:*GemmContract*:*AttentionContract*"
SANITIZED = (("memcheck", "test_runtime", ON_GPU, 1), ("memcheck", "test_contract", "*/cuda*", 6),
             ("racecheck", "test_contract", WITHOUT_LIBRARIES, 4), ("racecheck", "test_optim", ON_GPU, 1), ("initcheck", "test_tensor", ON_GPU, 1))


def only_own_kernels(check, tool):
    """Options that keep compute-sanitizer to the library's own kernels, in the words of its version: in those of cuDNN it reports
    races where none are, as it does not know what orders copies by the tensor memory accelerator."""
    known = "\n".join(check.run([tool, "--help"], 10, logged=False).lines)
    for option, key in (("--kernel-name", "kernel_substring"), ("--kernel-regex", "kns"), ("--filter", "kns")):
        if re.search(rf"{option}\b", known):
            return [option, f"{key}=lockstep"]
    return []


def run(check):
    """compute-sanitizer over tests that launch every kernel at least once, all tools beside each other."""
    tool = check.find_tool("compute-sanitizer")
    if not tool:
        check.skip("sanitizer", "compute-sanitizer is not on this machine")
        return
    options = [*only_own_kernels(check, tool), "--error-exitcode", "9"]

    def one(case):
        kind, name, wanted, part, parts = case
        program = check.place.program(name)
        if not program or check.left() < 5:
            check.skip("sanitizer", f"{kind} {name}: {'no time is left' if program else 'was not built'}")
            return
        # Tests provoke errors of the API.
        quiet = ["--report-api-errors", "no"] if kind == "memcheck" else []
        shard = {"GTEST_TOTAL_SHARDS": str(parts), "GTEST_SHARD_INDEX": str(part)}
        answer = check.run([tool, "--tool", kind, *quiet, *options, program, f"--gtest_filter={wanted}{':' if '-' in wanted else '-'}{SLOW}", "--gtest_color=no"],
                           check.left(), {**check.place.environment, **shard})
        tell_findings(check, kind, name, answer)

    cases = [(*case, part, parts) for *case, parts in SANITIZED for part in range(parts)]
    with concurrent.futures.ThreadPoolExecutor(1 if check.quick else len(cases)) as pool:
        list(pool.map(one, cases))


def tell_findings(check, kind, name, answer):
    if any("Device not supported" in line for line in answer.lines):
        check.skip("sanitizer", f"{kind} {name}: compute-sanitizer does not support this device")
        return
    found = [line for line in answer.lines if line.startswith("========= ") and
             re.search(r"Invalid|Race|Uninitialized|Error:|hazard", line)]
    summary = next((line for line in reversed(answer.lines) if "SUMMARY" in line), "")
    check.results.add("sanitizer", tool=kind, program=name, tests=sum(line.startswith("[       OK") for line in answer.lines), ended=answer.words, summary=summary.strip("= "), findings=found[:20])
    if found or (answer.code not in (0, 1) and not answer.is_late):
        check.note_failure("sanitizer", f"{kind} of {name}: {summary.strip('= ') or answer.words}")
