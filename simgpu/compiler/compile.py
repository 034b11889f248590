#!/usr/bin/env python3
"""Compiles CUDA C++ for the simulated GPU by a C++ compiler.

  compile.py [ccache] g++ OPTION... -o FILE.o -c FILE.cu

runs the compiler's preprocessor, translates what it makes (translate.py) into FILE.o.ii and compiles that. A command for
another kind of file is run as it stands. lockstep_simulate_kernels of CMake puts this before the compiler."""

import os
import re
import subprocess
import sys

from launches import SourceError
from translate import translate

_LAUNCHERS = ("ccache", "sccache", "distcc")
# Options of dependency files, and how many words follow.
_DEPENDENCIES = {"-MD": 0, "-MMD": 0, "-MP": 0, "-MT": 1, "-MQ": 1, "-MF": 1}


def main(command):
    if len(command) < 2 or not _source_of(command).endswith(".cu") or "-c" not in command or "-o" not in command:
        os.execvp(command[0], command)
    source, target = _source_of(command), command[command.index("-o") + 1]
    preprocessed = target + ".ii"
    status = subprocess.run(_preprocessing(command, source, target, preprocessed), check=False).returncode
    if status != 0:
        return status
    with open(preprocessed, encoding="utf-8", errors="surrogateescape", newline="") as file:
        text = file.read()
    try:
        text = translate(text)
    except SourceError as error:
        print(f"{_place(text, error.position)}: error: {error}", file=sys.stderr)
        return 1
    with open(preprocessed, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(text)
    return subprocess.run(_compiling(command, source, preprocessed), check=False).returncode


def _source_of(command):
    return command[command.index("-c") + 1] if "-c" in command[:-1] else command[-1]


def _without_launcher(command):
    return command[1:] if os.path.basename(command[0]) in _LAUNCHERS else command


def _preprocessing(command, source, target, to):
    words = ["-E" if word == "-c" else word for word in _without_launcher(command)]
    words[words.index("-o") + 1] = to
    if "-MD" in words and "-MT" not in words and "-MQ" not in words:
        words += ["-MT", target]
    if "-MD" in words and "-MF" not in words:
        words += ["-MF", os.path.splitext(target)[0] + ".d"]
    # CUDA's headers come by themselves, as with nvcc.
    at = words.index(source)
    return words[:at] + ["-DSIMGPU_TRANSLATES", "-include", "cuda_runtime.h"] + words[at:]


def _compiling(command, source, preprocessed):
    words, index = [], 0
    while index < len(command):
        word = command[index]
        if word in _DEPENDENCIES:
            index += 1 + _DEPENDENCIES[word]
            continue
        words.append({"c++": "c++-cpp-output", source: preprocessed}.get(word, word))
        index += 1
    return words


def _place(text, position):
    """FILE:LINE of a position in preprocessed text."""
    marker = None
    for marker in re.finditer(r'^# (\d+) "((?:\\.|[^"\\])*)"', text[:position], re.MULTILINE):
        pass
    if marker is None:
        return f"line {text.count(chr(10), 0, position) + 1}"
    line = int(marker.group(1)) + text.count("\n", marker.end(), position) - 1
    return f"{marker.group(2)}:{line}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
