#!/usr/bin/env python3
"""Prints benchmark results, one JSON object a line, as aligned tables: one for each benchmark.

    bench_table.py FILE [--markdown]
"""

import argparse
import json
import sys

# Of the run as a whole: printed once above the tables.
OF_THE_RUN = ("machine", "versions", "commit", "compiler", "threads_available")


def text(value):
    """A cell: numbers with four significant digits."""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.0f}"
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return "" if value is None else str(value)


def print_table(rows, markdown):
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns] + [[text(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for number, line in enumerate(cells):
        padded = [cell.ljust(width) for cell, width in zip(line, widths)]
        print("| " + " | ".join(padded) + " |" if markdown else "  ".join(padded).rstrip())
        if markdown and number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=argparse.FileType())
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.file if line.startswith("{")]
    if not lines:
        print("no results", file=sys.stderr)
        return 1
    for key in OF_THE_RUN:
        values = {text(line.pop(key)) for line in lines if key in line}
        if values:
            print(f"{key}: {', '.join(sorted(values))}")
    tables = {}
    for line in lines:
        tables.setdefault(line.pop("benchmark", ""), []).append(line)
    for name, rows in tables.items():
        print(f"\n{name}")
        print_table(rows, options.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
