#!/usr/bin/env python3
"""Fails on a test that ctest would run without all of its environment: test_environment.py CTEST BUILD

CMake passes a list among the properties of gtest_discover_tests on as several properties, without a word: such lists
go through lockstep_set_discovered.

    test_environment.py --self-test    see planted ones found
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DISCOVERY = re.compile(r"gtest_discover_tests\(((?:[^()]|\([^()]*\))*)\)")


def lists_given(text):
    """Quoted lists in the calls of gtest_discover_tests of a CMake file."""
    text = re.sub(r"(?m)#.*$", "", text)
    return [found for call in DISCOVERY.findall(text) for found in re.findall(r'"[^"]*;[^"]*"', call)]


def needed(name, labels):
    """What the environment of a test has to have."""
    if "check" in labels or name.startswith("Consumer."):
        return []
    if labels & {"cpu", "mpi"}:
        return ["LOCKSTEP_SIM_DEVICES=0"]
    if name.startswith("SimHostAccess"):
        return ["LOCKSTEP_SIM_DEVICES=2", "LOCKSTEP_SIM_HOST_WATCH=" + name.rpartition("/")[2]]
    return []


def faults_of(tests):
    """Tests, as ctest lists them, that lack something."""
    faults = []
    for test in tests:
        properties = {each["name"]: each["value"] for each in test.get("properties", [])}
        wanted = needed(test["name"], set(properties.get("LABELS", [])))
        missing = [each for each in wanted if each not in properties.get("ENVIRONMENT", [])]
        if missing:
            faults.append(f"{test['name']} runs without {' '.join(missing)}")
    return faults


def self_test():
    def test(name, label, *environment):
        return {"name": name, "properties": [{"name": "LABELS", "value": [label]},
                                             {"name": "ENVIRONMENT", "value": list(environment)}]}

    whole = [test("A.b", "cpu", "X=1", "LOCKSTEP_SIM_DEVICES=0"), test("C.d", "sim"),
             test("SimHostAccess.e/keys", "sim", "LOCKSTEP_SIM_DEVICES=2", "LOCKSTEP_SIM_HOST_WATCH=keys")]
    lacking = [test("A.b", "cpu", "X=1"), test("A.c", "mpi"), test("SimHostAccess.e/keys", "sim", "LOCKSTEP_SIM_DEVICES=2")]
    assert not faults_of(whole), faults_of(whole)
    assert len(faults_of(lacking)) == 3, faults_of(lacking)
    assert lists_given('gtest_discover_tests(t TEST_FILTER "-A:$<B>(x)"\n  ENVIRONMENT "A=1;B=2") # "c;d"') == ['"A=1;B=2"']
    assert not lists_given('# gtest_discover_tests(t ENVIRONMENT "A;B")\nset(x "A;B")\ngtest_discover_tests(t LABELS cpu)')


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    ctest, build = sys.argv[1:]
    faults = [f"{path.relative_to(ROOT)}: {found} is taken apart: lockstep_set_discovered carries it whole"
              for folder in ("tests", "simgpu/tests") for name in ("CMakeLists.txt", "*.cmake")
              for path in sorted((ROOT / folder).rglob(name)) for found in lists_given(path.read_text())]
    listed = subprocess.run([ctest, "--test-dir", build, "--show-only=json-v1"], stdout=subprocess.PIPE, check=True)
    tests = json.loads(listed.stdout)["tests"]
    faults += faults_of(tests)
    shown = faults[:20] + [f"... and {len(faults) - 20} more"] * (len(faults) > 20)
    print("\n".join(shown + [f"{len(tests)} tests, {len(faults)} faults"]))
    return 1 if faults or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
