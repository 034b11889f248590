#!/usr/bin/env python3
"""Compares what tests reached on the simulated GPU with what the library has; see sim_coverage.sh.

usage: sim_coverage.py LIBRARY.a RECORDED   (from the root of the checkout)
       sim_coverage.py --add-plans RECORDED: adds the problems for cuDNN to those in tests/data
       sim_coverage.py --self-test
"""
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

# Programs that call the simulated libraries themselves: no proof of what lockstep calls.
OWN_TESTS = ("test_simgpu", "simgpu_", "planted_faults")
PLANS = Path("tests/data/cudnn_problems.txt")
ENTRY_POINT = re.compile(r"^(cuda|nccl|cublasLt)[A-Z]\w*$")
# The launch function is a template over this one in the simulated build.
LAUNCH = re.compile(r"\d+simgpu\d+enqueue_launch|simgpu14enqueue_launch")
GLOBAL = re.compile(r"__global__\s[\w\s]*?\b(\w+)\s*\(")


def kernels_of_text(text):
    text = re.sub(r"//[^\n]*", "", text)
    return GLOBAL.findall(re.sub(r"__launch_bounds__\s*\([^()]*\)", "", text))


def kernels_of_sources(folder):
    """{(file, kernel)} of all __global__ functions."""
    found = set()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".cu", ".hpp", ".cuh"):
            found |= {(path.name, kernel) for kernel in kernels_of_text(path.read_text())}
    return found


def symbols_of_library(library):
    """[(object, type, mangled name)] of everything that nm lists."""
    listing = subprocess.run(["nm", library], check=True, capture_output=True, text=True).stdout
    symbols, member = [], ""
    for line in listing.splitlines():
        if line.endswith(":"):
            member = line[:-1]
            continue
        fields = line.split()
        if len(fields) >= 2:
            symbols.append((member, fields[-2], fields[-1]))
    return symbols


def base_name(mangled):
    """The last name of a function's own path: softmax_kernel of ns::softmax_kernel<float>(...)."""
    rest = re.sub(r"^_ZL?N?K?", "", mangled)
    name = ""
    while match := re.match(r"L?(\d+)", rest):
        length = int(match.group(1))
        name = rest[match.end():match.end() + length]
        rest = rest[match.end() + length:]
    return name


def instantiations(symbols, sources):
    """{(file, kernel): {mangled names}}: a kernel's own file first, else the header that has it."""
    files = defaultdict(set)
    for file, kernel in sources:
        files[kernel].add(file)
    found = {key: set() for key in sources}
    for member, kind, mangled in symbols:
        if kind not in "tTW" or not mangled.startswith("_ZN") and not mangled.startswith("_ZL"):
            continue
        kernel, own = base_name(mangled), member.removesuffix(".o")
        if "." in mangled or kernel not in files or not own.endswith(".cu"):
            continue
        candidates = files[kernel]
        headers = {file for file in candidates if not file.endswith(".cu")}
        for file in {own} & candidates or headers:
            found[file, kernel].add(mangled)
    return found


def entry_points(symbols):
    names = {name for _, kind, name in symbols if kind == "U" and ENTRY_POINT.match(name)}
    if any(kind == "U" and LAUNCH.search(name) for _, kind, name in symbols):
        names.add("cudaLaunchKernelExC")
    return names


def driver_functions_of_text(text):
    """Functions of the driver that are asked for by name, as libcuda is not linked."""
    return set(re.findall(r'\bfind\("(cu[A-Z]\w+)"', text))


def driver_functions(folder):
    return set().union(*(driver_functions_of_text(path.read_text())
                         for path in folder.rglob("*.cpp")))


def read_recorded(lines):
    """Functions and kernels that programs other than the simulated GPU's own tests reached."""
    reached = {"call": set(), "kernel": set(), "plan": set()}
    for line in lines:
        fields = line.split()
        if len(fields) == 3 and not fields[0].startswith(OWN_TESTS) and fields[1] in reached:
            reached[fields[1]].add(fields[2])
    return reached


def percent(part, whole):
    return f"{part} of {whole} ({100.0 * part / whole if whole else 0:.1f} %)"


def report(kernels, functions, reached):
    """Prints the tables. Returns whether everything was reached."""
    missing_kernels = []
    print(f"{'kernel':<34}{'source':<20}{'instantiations':>15}{'reached':>9}")
    for (file, kernel), names in sorted(kernels.items()):
        hit = len(names & reached["kernel"])
        print(f"{kernel:<34}{file:<20}{len(names):>15}{hit:>9}{'' if hit else '   MISSING'}")
        if not hit:
            missing_kernels.append(kernel)
    missing = sorted(functions - reached["call"])
    print()
    for name in missing:
        print(f"never called: {name}")
    all_names = set().union(*kernels.values()) if kernels else set()
    print(f"kernels reached: {percent(len(kernels) - len(missing_kernels), len(kernels))}")
    print(f"instantiations reached: {percent(len(all_names & reached['kernel']), len(all_names))}")
    print(f"imported functions reached: {percent(len(functions) - len(missing), len(functions))}")
    return bool(kernels) and bool(functions) and not missing and not missing_kernels


def plans_on_file():
    lines = PLANS.read_text().splitlines() if PLANS.exists() else []
    return {line for line in lines if line and not line.startswith("#")}


def add_plans(plans):
    """Takes none away: other machines ask for others (made images where there are no real ones)."""
    head = "# What the tests ask of cuDNN: scripts/sim_coverage.py --add-plans makes this file.\n"
    PLANS.write_text(head + "".join(f"{plan}\n" for plan in sorted(plans | plans_on_file())))


def report_plans(plans):
    """Whether the file of problems, for which CI asks the real cuDNN, is complete."""
    missing = sorted(plans - plans_on_file())
    for plan in missing[:10]:
        print(f"not in {PLANS}: {plan}")
    print(f"problems for cuDNN on file: {percent(len(plans) - len(missing), len(plans))}")
    if missing:
        print("put them there: scripts/sim_coverage.py --add-plans RECORDED")
    return not missing


def self_test():
    assert base_name("_ZN8lockstep12cuda_kernels12_GLOBAL__N_114softmax_kernelIfEEvPT_") == (
        "softmax_kernel")
    assert base_name("_ZN8lockstep12cuda_kernelsL10key_kernelEPKlPj") == "key_kernel"
    text = "__global__ void __launch_bounds__(threads) clip_kernel(int);"
    assert kernels_of_text(text) == ["clip_kernel"]
    symbols = [("a.cu.o", "t", "_ZN2ns12_GLOBAL__N_11kIfEEvPT_"),
               ("b.cu.o", "t", "_ZN2ns12_GLOBAL__N_11kIdEEvPT_"),
               ("x.cpp.o", "U", "cudaMalloc"), ("x.cpp.o", "U", "cudaFree"),
               ("a.cu.o", "U", "_ZN6simgpu14enqueue_launchERK18cudaLaunchConfig_tPKvSt16init")]
    kernels = instantiations(symbols, {("a.cu", "k"), ("b.cu", "k")})
    assert [len(names) for names in kernels.values()] == [1, 1]
    functions = entry_points(symbols)
    assert functions == {"cudaMalloc", "cudaFree", "cudaLaunchKernelExC"}, functions
    assert driver_functions_of_text('find("cuMemMap", all.map)') == {"cuMemMap"}
    lines = ["test_ops call cudaMalloc", "test_ops call cudaLaunchKernelExC",
             "test_simgpu call cudaFree", "test_ops kernel _ZN2ns12_GLOBAL__N_11kIfEEvPT_"]
    assert not report(kernels, functions, read_recorded(lines))
    lines += ["test_ops call cudaFree", "test_ops kernel _ZN2ns12_GLOBAL__N_11kIdEEvPT_"]
    assert report(kernels, functions, read_recorded(lines))


def main(arguments):
    if arguments == ["--self-test"]:
        self_test()
        return 0
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with open(arguments[1], encoding="utf-8") as file:
        reached = read_recorded(file)
    if arguments[0] == "--add-plans":
        add_plans(reached["plan"])
        return 0
    symbols = symbols_of_library(arguments[0])
    kernels = instantiations(symbols, kernels_of_sources(Path("kernels/cuda")))
    functions = entry_points(symbols) | driver_functions(Path("src"))
    complete = report(kernels, functions, reached)
    return 0 if report_plans(reached["plan"]) and complete else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
