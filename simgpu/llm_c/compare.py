#!/usr/bin/env python3
"""Whether the losses that llm.c prints are those of reference.py.

  compare.py REFERENCE OUTPUT TOLERANCE"""

import re
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        expected = [float(line) for line in file]
    with open(sys.argv[2], encoding="utf-8", errors="replace") as file:
        got = [float(loss) for loss in re.findall(r"^step +\d+/\d+[:|\s]+(?:train )?loss (-?[\d.a-z]+)", file.read(), re.MULTILINE)]
    worst = max((abs(a - b) for a, b in zip(expected, got)), default=float("inf"))
    right = len(got) >= len(expected) and worst <= float(sys.argv[3])
    print(f"losses {' '.join(f'{loss:.4f}' for loss in got[: len(expected)])}, PyTorch's "
          f"{' '.join(f'{loss:.4f}' for loss in expected)}: {'alike' if right else 'DIFFERENT'} (by {worst:.1e})")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
