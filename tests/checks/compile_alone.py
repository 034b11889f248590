#!/usr/bin/env python3
"""Compiles each file by itself, as far as errors and warnings go: a batch may hide that one lacks an include.

    compile_alone.py SOURCE BUILD [CMAKE ARGUMENT...]    configures BUILD without batches; no object is made there
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def commands_of(build: pathlib.Path) -> dict[str, tuple[list[str], str]]:
    """By file, once each, what compiles it and where."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if "/Unity/unity_" in entry["file"]:
            sys.exit(f"{entry['file']} is a batch, though each file is to be compiled alone")
        if not entry["file"].endswith(".cpp"):
            continue  # kernels, which are always compiled alone
        words = shlex.split(entry["command"])
        words[words.index("-o") + 1] = os.devnull
        commands.setdefault(entry["file"], ([*words, "-fsyntax-only"], entry["directory"]))
    return commands


def main() -> int:
    source, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    subprocess.run(["cmake", "-S", source, "-B", build, "-DLOCKSTEP_UNITY_BUILD=OFF",
                    "-DLOCKSTEP_WARNINGS_AS_ERRORS=ON", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
                    *sys.argv[3:]], check=True, stdout=subprocess.DEVNULL)
    commands = commands_of(build)
    failed = []

    def compile_one(file: str) -> None:
        words, directory = commands[file]
        result = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            failed.append(file)
            print(f"{file}\n{result.stderr}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, commands))
    print(f"{len(commands)} files compiled alone, {len(failed)} failed")
    return 1 if failed or not commands else 0


if __name__ == "__main__":
    sys.exit(main())
