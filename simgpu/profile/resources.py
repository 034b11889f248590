"""Registers, spills and static shared memory of kernels, as nvcc compiles them: what no simulation knows.

`compile` asks ptxas for those of a build folder's .cu files (its compile_commands.json), with all optimisation, and
without writing into it. `join` puts them into a profile's kernels, by their mangled names.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess

# What names a kernel in an unnamed namespace differs between compilers: nvcc's has the file and a number in it.
UNNAMED = re.compile(r"(\d+)(_GLOBAL__N__[0-9a-f]+_)")
ENTRY = re.compile(r"Compiling entry function '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
STATIC_SHARED = re.compile(r"(\d+) bytes smem")


def plain(symbol):
    """A symbol with its unnamed namespaces as GCC writes them."""
    while found := UNNAMED.search(symbol):
        # Digits before the length may belong to a template argument: the length is that which fits.
        for begin in range(found.start(1), found.end(1)):
            end = found.end(1) + int(symbol[begin:found.end(1)])
            if end <= len(symbol) and re.fullmatch(r"_GLOBAL__N__[0-9a-f]+_\d+_\w+_[0-9a-f]{8}", symbol[found.end(1):end]):
                symbol = f"{symbol[:begin]}12_GLOBAL__N_1{symbol[end:]}"
                break
        else:
            return symbol
    return symbol


def parse(text):
    """{symbol: {"registers", "static_shared" in bytes, "spills" in bytes of stores and loads}} of what ptxas -v says."""
    kernels, symbol = {}, None
    for line in text.splitlines():
        if entry := ENTRY.search(line):
            symbol = plain(entry[1])
            kernels[symbol] = {"registers": None, "spills": 0, "static_shared": 0}
        elif symbol and (spills := SPILLS.search(line)):
            kernels[symbol]["spills"] = int(spills[1]) + int(spills[2])
        elif symbol and (registers := REGISTERS.search(line)):
            kernels[symbol]["registers"] = int(registers[1])
            if shared := STATIC_SHARED.search(line):
                kernels[symbol]["static_shared"] = int(shared[1])
    return kernels


def command_of(words, architecture):
    """A compilation of the same source for ptxas alone, at full optimisation."""
    left_out = re.compile(r"--generate-code=.*|-gencode.*|-O\d|-Ofc|-o|-c|-MD|-MT|-MF")
    kept, skips = [], False
    for word in words:
        if skips:
            skips = False
        elif left_out.fullmatch(word):
            skips = word in ("-o", "-Ofc", "-MT", "-MF", "-gencode")
        else:
            kept.append(word)
    number = architecture.removeprefix("sm_")
    return [*kept, "-O3", f"-gencode=arch=compute_{number},code=sm_{number}", "-cubin", "-Xptxas=-v", "-o", os.devnull]


def compile(folder, architecture="sm_90", jobs=None, names=()):
    """The same of all .cu files of a build folder, or of those of these names.

    Raises ValueError where there are none or one does not compile."""
    path = pathlib.Path(folder) / "compile_commands.json"
    entries = [entry for entry in json.loads(path.read_text()) if entry["file"].endswith(".cu")]
    entries = [entry for entry in entries if "nvcc" in entry["command"]]
    if missing := set(names) - {pathlib.Path(entry["file"]).name for entry in entries}:
        raise ValueError(f"{path}: no {', '.join(sorted(missing))} in it that nvcc compiles")
    if names:
        entries = [entry for entry in entries if pathlib.Path(entry["file"]).name in names]
    if not entries:
        raise ValueError(f"{path}: nothing in it is compiled by nvcc; give the folder of a build with LOCKSTEP_CUDA=ON")

    def kernels_of(entry):
        command = command_of(shlex.split(entry["command"]), architecture)
        done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(f"{entry['file']}: {done.stderr.strip()[-500:]}")
        return parse(done.stdout + done.stderr)

    kernels = {}
    entries.sort(key=lambda entry: os.path.getsize(entry["file"]), reverse=True)  # the longest first
    with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        for found in pool.map(kernels_of, entries):
            kernels.update(found)
    return kernels


def template_of(symbol):
    """A kernel's name and template arguments, as far as compilers agree: on parameters and static functions they do not."""
    return re.sub(r"L(?=\d)", "", symbol.partition("Ev")[0])


def join(profile, kernels):
    """Puts them into the kernels of a profile. Returns how many of its kernels are known, and how many it has."""
    by_template = {template_of(symbol): found for symbol, found in kernels.items()}
    names, known = set(), set()
    for record in profile.records:
        if record["kind"] != "kernel" or "symbol" not in record:
            continue
        symbol = record["symbol"]
        names.add(symbol)
        if found := kernels.get(symbol) or by_template.get(template_of(symbol)):
            record.update(found)
            known.add(symbol)
    return len(known), len(names)
