"""The frame of a check of the source tree: a folder to check, or --self-test."""

import argparse
import pathlib


def run(description, check, self_test, summary):
    """Reads the command line and returns the exit code.

    check(root) returns printable lines, one for each thing found, and how many things it looked at:
    none of them is a failure too. self_test() plants things and says whether just those were found.
    summary(looked_at, found) is the last line.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true", help="see planted violations caught")
    options = parser.parse_args()
    if options.self_test:
        return 0 if self_test() else 1
    lines, looked_at = check(options.root)
    print("\n".join(lines), end="\n" if lines else "")
    print(summary(looked_at, len(lines)))
    return 1 if lines or not looked_at else 0
