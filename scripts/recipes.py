#!/usr/bin/env python3
"""Carries out the recipes of docs/extending.md on a copy of the tree, builds it and runs their tests.

A recipe is a folder of tests/recipes: files as they will lie in the tree, and edits.patch for files
that are there, if it edits any. Fails if one touches more files than the document says (those of tests and documents
not counted) or breaks a rule of the tree, or if the document shows code that no source has; then if
the copy does not build, or a test fails, is skipped or does not exist.

    recipes.py              all of it, in build-recipes (or LOCKSTEP_RECIPES_DIR); minutes
    recipes.py --check      without building: seconds
    recipes.py --self-test  see planted faults of recipes caught
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECIPES = ROOT / "tests/recipes"
DOCUMENT = "docs/extending.md"
NOT_COUNTED = ("tests/", "docs/")
SOURCES = {".hpp", ".cpp", ".cu", ".def"}


@dataclasses.dataclass
class Recipe:
    """What a recipe may touch, and its tests."""
    name: str
    most_files: int
    tests: list  # programs of GoogleTest with filters, each of which must find some
    edits_tests: bool = True
    op: str = ""  # what suites over all ops are held to
    ctest: str = ""  # a pattern of further tests, and the program that is built for them
    program: str = ""
    # A folder whose files serve the recipe under another name: (from, to, {word: word}).
    borrows: tuple = ()


def on_both_devices(suite):
    """The cases of a contract suite, device by device."""
    return [f"*{suite}.*/cpu_*", f"*{suite}.*/cuda_*"]


ALL = [
    Recipe("elementwise_op", 5, [
        ("test_contract", on_both_devices("UnaryContract")),
        ("test_autograd", ["*UnaryGradients*/softsign", "ElementwiseGradientsOnGpu.OfEveryUnary*"]),
        ("test_random", ["*RandomUnary.Agrees*cpu*", "*RandomUnary.Agrees*cuda*"]),
    ], edits_tests=False, op="softsign"),
    Recipe("reduction", 4, [
        ("test_contract", on_both_devices("ReduceContract")),
        ("test_autograd", ["AbsSum.*", "AbsSumOnGpu.*"]),
    ]),
    Recipe("optimizer", 4, [("test_optim", ["*SignumOn.*/cpu", "*SignumOn.*/cuda", "Signum.*"])]),
    Recipe("kernel", 5, [
        ("test_contract", on_both_devices("DiscountedSumContract")),
        ("test_autograd", ["DiscountedSum.*", "DiscountedSumOnGpu.*"]),
    ]),
    Recipe("kernel_family", 4, [("test_contract", on_both_devices("RowScaleContract"))]),
    Recipe("upstream", 1, [("test_memory", ["FileUpstreamTest.*"])]),
    Recipe("communicator", 0, [], ctest="^test_comm_mapped_np", program="test_comm_mapped",
           borrows=("tests/comm/window", "src/comm/mapped", {"window": "mapped", "Window": "Mapped"})),
]
# A project of its own, which finds the library that was built.
OWN_PROJECT = "own_op"
# What the programs of these folders are built of, beside the tests that recipes bring: their other
# tests would take minutes and prove nothing here.
SUITES = {"tests/contract": {"unary_test.cpp", "reduce_test.cpp"},
          "tests/autograd": {"elementwise_grad_test.cpp"},
          "tests/random": {"elementwise_test.cpp"},
          "tests/optim": set(), "tests/memory": set()}


def fail(*lines):
    sys.exit("recipes: " + "\n".join(map(str, lines)))


def run(command, **options):
    """Runs a command; its output is shown as it comes."""
    if subprocess.run(command, check=False, **options).returncode:
        fail("failed: " + " ".join(map(str, command)))


def files_of(root):
    """Every file below root as {relative path: bytes}."""
    return {path.relative_to(root).as_posix(): path.read_bytes()
            for path in root.rglob("*") if path.is_file()}


def tracked_files():
    """The tree as git would have it, changes that are not committed included."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, check=False, capture_output=True, text=True)
    if listed.returncode:  # not a clone
        return {name: content for name, content in files_of(ROOT).items()
                if not name.startswith(("build", "."))}
    return {name: (ROOT / name).read_bytes() for name in listed.stdout.split("\0")
            if name and (ROOT / name).is_file()}


def write(files, root):
    """Makes root hold these files and no others; those that are so already keep their times."""
    for name in files_of(root).keys() - files.keys() if root.exists() else ():
        (root / name).unlink()
    for name, content in files.items():
        path = root / name
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        path.chmod((ROOT / name).stat().st_mode if (ROOT / name).exists() else 0o644)


def borrowed(files, source, target, words):
    """The files of a folder, tests not, in another one with words replaced in names and text."""
    def renamed(text):
        return re.sub("|".join(words), lambda found: words[found.group()], text)
    return {f"{target}/{renamed(name.removeprefix(source + '/'))}":
            renamed(content.decode().replace(source.removeprefix("tests/"),
                                             target.removeprefix("src/"))).encode()
            for name, content in files.items()
            if name.startswith(source + "/") and not name.endswith("_test.cpp")}


def carry_out(recipe, files):
    """The tree after a recipe, and what it touched."""
    added = files_of(RECIPES / recipe.name)
    patch = added.pop("edits.patch", b"")
    if recipe.borrows:
        added |= borrowed(files, *recipe.borrows)
    taken = added.keys() & files.keys()
    if taken:
        fail(f"{recipe.name}: is there already: {', '.join(sorted(taken))}")
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        edited = re.findall(r"^\+\+\+ b/(.*)$", patch.decode(), re.MULTILINE)
        write({name: files[name] for name in edited if name in files}, work)
        if patch and (result := subprocess.run(["git", "apply", "-"], cwd=work, input=patch,
                                               capture_output=True, check=False)).returncode:
            fail(f"tests/recipes/{recipe.name}/edits.patch does not fit the tree any more:",
                 result.stderr.decode())
        after = files | files_of(work) | added
    return after, sorted(name for name in after if after[name] != files.get(name))


def check_count(recipe, before, after, touched):
    """Fails if the recipe touches more than it may."""
    tests = [name for name in touched if name.startswith("tests/")]
    if tests and not recipe.edits_tests:
        fail(f"{recipe.name} is said to edit no tests, but touches:", *tests)
    touched = [name for name in touched if not name.startswith(NOT_COUNTED)]
    counted = touched
    if recipe.borrows:  # one folder, and one line
        folder, cmake = recipe.borrows[1] + "/", "cmake/LockstepLibrary.cmake"
        counted = [name for name in touched if not name.startswith(folder) and name != cmake]
        lines = [set(tree[cmake].splitlines()) for tree in (before, after)]
        if len(lines[1] - lines[0]) != 1:
            fail(f"{recipe.name} changes {len(lines[1] - lines[0])} lines of {cmake}, not one")
    if len(counted) > recipe.most_files:
        fail(f"{recipe.name} touches {len(counted)} files of the library; at most "
             f"{recipe.most_files} are documented:", *counted)
    print(f"{recipe.name}: {len(touched)} files of the library: {' '.join(touched)}")


def squeezed(text):
    """Without what formatting changes."""
    return "".join(text.split())


def check_document(files):
    """Fails on C++ in the document that no source has."""
    blocks = re.findall(r"^[ ]*```cpp\n(.*?)```", files[DOCUMENT].decode(),
                        re.MULTILINE | re.DOTALL)
    sources = [squeezed(content.decode()) for name, content in files.items()
               if pathlib.PurePath(name).suffix in SOURCES]
    for block in blocks:
        if not any(squeezed(block) in source for source in sources):
            fail(f"no source has this code of {DOCUMENT}:\n{block}")
    print(f"{DOCUMENT}: {len(blocks)} pieces of code, all of which are in sources")


def recipes_tree():
    """The tree with all recipes carried out, each of which was counted alone."""
    original = tracked_files()
    files = original
    for recipe in ALL:
        alone, touched = carry_out(recipe, original)
        check_count(recipe, original, alone, touched)
        files, _ = carry_out(recipe, files)
    check_document(files)
    return {name: content for name, content in files.items()
            if name not in original or not is_spare(pathlib.PurePosixPath(name))}


def is_spare(path):
    """Whether a file of the tree is a test that the copy is built without."""
    kept = SUITES.get(path.parent.as_posix())
    return kept is not None and path.name.endswith("_test.cpp") and path.name not in kept


def test(build, recipe):
    """Runs the recipe's tests; a filter that finds none is a failure."""
    environment = os.environ | ({"LOCKSTEP_TEST_OP": recipe.op} if recipe.op else {})
    for program, filters in recipe.tests:
        binary = build / "bin" / program
        for pattern in filters:
            print(f"{recipe.name}: {program} {pattern}", flush=True)
            result = subprocess.run([binary, f"--gtest_filter={pattern}", "--gtest_brief=1"],
                                    capture_output=True, text=True, check=False, env=environment)
            passed = re.findall(r"\[  PASSED  \] (\d+) test", result.stdout)
            if result.returncode or "SKIPPED" in result.stdout or not passed or "0" in passed:
                fail(f"{recipe.name}: {program} {pattern}: ended with {result.returncode}",
                     result.stdout, result.stderr)
    if recipe.ctest:
        run(["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error",
             "-R", recipe.ctest])


def build_and_test(work):
    """Builds the copy, and only what the recipes need, for the CPU and the simulated GPU."""
    tree, build = work / "tree", work / "build"
    launcher = shutil.which("ccache")
    if not (build / "build.ninja").exists():
        run(["cmake", "--preset", "sim", "-S", tree, "-B", build, "-DLOCKSTEP_BUILD_TESTS=ON",
             "-DLOCKSTEP_WARNINGS_AS_ERRORS=ON", "-DLOCKSTEP_CPU_ISAS=baseline",
             "-DLOCKSTEP_ONEDNN=OFF", "-DLOCKSTEP_MPI=ON", "-DLOCKSTEP_BUILD_EXAMPLES=OFF",
             "-DLOCKSTEP_BUILD_BENCHMARKS=OFF",
             *([f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}"] if launcher else [])], cwd=tree)
    programs = {program for recipe in ALL for program, _ in recipe.tests}
    programs |= {recipe.program for recipe in ALL if recipe.program}
    run(["cmake", "--build", build, "--parallel", str(os.cpu_count()), "--target",
         *sorted(programs)])
    for recipe in ALL:
        test(build, recipe)
    own = work / OWN_PROJECT
    shutil.rmtree(own, ignore_errors=True)
    run(["cmake", "-S", RECIPES / OWN_PROJECT, "-B", own, "-G", "Ninja",
         f"-Dlockstep_DIR={build}"])
    run(["cmake", "--build", own])
    run([own / "own_op"])


def refuses(action):
    """Whether an action fails, as `fail` does."""
    try:
        action()
    except SystemExit as end:
        return str(end.code).startswith("recipes: ")
    return False


def self_test():
    """Plants a recipe that touches too much, a tree that moved on, and code that is only shown."""
    original = tracked_files()
    recipe = ALL[0]
    after, touched = carry_out(recipe, original)
    too_few = dataclasses.replace(recipe, most_files=len(touched) - 1)
    moved = original | {touched[0]: original[touched[0]].replace(b"Tensor ", b"Array ")}
    shown = after | {DOCUMENT: b"```cpp\nno_such_code();\n```"}
    borrower = next(recipe for recipe in ALL if recipe.borrows)
    after_borrower, borrowers = carry_out(borrower, original)
    own_test = [*touched, "tests/contract/softsign_test.cpp"]
    optimizer = next(recipe for recipe in ALL if recipe.name == "optimizer")
    planted = {
        "a file too many": lambda: check_count(too_few, original, after, touched),
        "a test of its own": lambda: check_count(recipe, original, after, own_test),
        "a file beside the folder": lambda: check_count(borrower, original, after_borrower,
                                                        [*borrowers, "src/comm/other.cpp"]),
        "a stale patch": lambda: carry_out(recipe, moved),
        "a file that is there": lambda: carry_out(optimizer, original | {"src/optim/signum.cpp": b""}),
        "code that no source has": lambda: check_document(shown),
    }
    missed = [name for name, action in planted.items() if not refuses(action)]
    print("self-test: not caught: " + ", ".join(missed) if missed else "self-test: all caught")
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="count and compare, build nothing")
    parser.add_argument("--self-test", action="store_true", help="see planted faults caught")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # in step with the programs it runs
    if options.self_test:
        sys.exit(self_test())
    files = recipes_tree()
    with tempfile.TemporaryDirectory() as checked:
        write(files, pathlib.Path(checked))
        for rule in ("check_layering.py", "check_docs.py"):
            run([sys.executable, ROOT / "scripts" / rule, checked], stdout=subprocess.DEVNULL)
    if options.check:
        return
    work = pathlib.Path(os.environ.get("LOCKSTEP_RECIPES_DIR", ROOT / "build-recipes")).resolve()
    write(files, work / "tree")
    build_and_test(work)
    print("all recipes work as documented")


if __name__ == "__main__":
    main()
