#!/usr/bin/env bash
# Runs scripts/scaling.sh on steps as small as they get: each point that was asked for has its row,
# with figures, and there is a plot.
#
#   scaling_test.sh BENCHMARK_SCALING
set -euo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export LOCKSTEP_SCALING_PROGRAM=$1
"$(dirname "$0")/../../scripts/scaling.sh" --ranks "1 2" --device cpu --batch 1 --global-batch 2 \
  --rounds 1 --out "$out"

python3 - "$out/scaling.csv" <<'END'
import csv
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
points = [(row["mode"], row["ranks"], row["batch_a_rank"]) for row in rows]
assert points == [("weak", "1", "1"), ("weak", "2", "1"), ("strong", "1", "2"), ("strong", "2", "1")], points
for row in rows:
    assert float(row["step_ms"]) > 0 and float(row["efficiency"]) > 0 and row["limit"], row
    assert 0 <= float(row["hidden_share"]) <= 1, row
END
[ -s "$out/scaling.svg" ] || { echo "no plot" && exit 1; }
