#!/usr/bin/env python3
"""Fails on a word of our own where the field has one.

Reads names and comments of the C++ and CUDA sources. A word is found where it begins a name or a
part of one: in `patience_` and `HostPatience`, not in `impatient`. Words that are good English
elsewhere, such as nest, strip and meet, are left to the reviewer.

    check_words.py [ROOT]      check the tree (default: this checkout)
    check_words.py --self-test see planted words found, and others passed over
"""

import re
import sys

import tree_check

# How a word or phrase begins -> what to say instead.
WORDS = {
    "greet": "handshake, signature or eager message",
    "patien": "timeout or grace period",
    "doorkeep": "listener or acceptor",
    "doorman": "listener or acceptor",
    "settle": "quiesce, or wait until ready",
    "bury": "destroy or free",
    "lend": "acquire",
    "take_back": "release or free",
    "stripe": "tile, block or row",
    "may be said": "options",
    "lives for ever": "for the life of the process",
    "system_clock": "steady_clock, or wait_for: a clock that is set must not move a deadline",
}
# Where a word is the field's: PyTorch's and Keras' option of that name.
FIELDS_OWN = {"patien": ("include/lockstep/optim/plateau.hpp", "src/optim/plateau.cpp",
                         "tests/optim/schedules_test.cpp", "include/lockstep/train/early_stopping.hpp",
                         "include/lockstep/train/loop.hpp", "src/train/early_stopping.cpp", "src/train/loop_checks.cpp",
                         "tests/parallel/training_loop_test.cpp", "tests/parallel/early_stopping_test.cpp",
                         "tests/parallel/resumed_loop_test.cpp", "tests/examples/checkpoints_test.cpp",
                         "tests/examples/command_line_test.cpp", "examples/train_gpt.cpp",
                         "examples/support/loop_options.hpp", "examples/support/loop_options.cpp")}
FOLDERS = ("include", "src", "kernels", "simgpu", "tests", "examples", "benchmarks")
SUFFIXES = {".hpp", ".h", ".cpp", ".cu", ".def"}
FOUND = re.compile("|".join(rf"(?<![A-Za-z]){word}|{word.capitalize()}" for word in WORDS))


def words_in(text):
    """(line number, the beginning of a word) for all that stay out."""
    for number, line in enumerate(text.splitlines(), 1):
        for found in FOUND.finditer(line):
            yield number, found.group().lower()


def check(root):
    """(printable lines, number of files) below root."""
    files = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*"))
             if file.suffix in SUFFIXES]
    lines = [f"{name}:{number}: '{word}...': say {WORDS[word]}"
             for file in files for name in [file.relative_to(root).as_posix()]
             for number, word in words_in(file.read_text(errors="replace"))
             if name not in FIELDS_OWN.get(word, ())]
    return lines, len(files)


SELF_TEST = '''
constexpr int patience_ = 1;  // found
struct HostPatience {};  // found
void impatient(int blend, int settings);
/// Lends a stream.  found
stream.take_back();  // found
/// What may be said of a group.  found
auto now = std::chrono::system_clock::now();  // found
bool nested_stripped_meeting = true;
'''


def self_test():
    """Compares what is found with the lines marked `found` above."""
    found = {number for number, _ in words_in(SELF_TEST)}
    expected = {number for number, line in enumerate(SELF_TEST.splitlines(), 1)
                if line.endswith("found")}
    for line in sorted(found ^ expected):
        print(f"self-test: line {line} {'missed' if line in expected else 'wrongly reported'}")
    return found == expected


def summary(files, found):
    return f"words: {files} files, {found} words that the field has others for"


if __name__ == "__main__":
    sys.exit(tree_check.run(__doc__, check, self_test, summary))
