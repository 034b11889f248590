#!/usr/bin/env bash
# What benchmarks/peers/long_runs.py asks of a rank, in its order, of a state as small as it gets: each
# request has its answer.
#
#   checkpoint_requests_test.sh BENCHMARK_CHECKPOINT
set -euo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
requests=(first load copy save load stalls checksums beside load)
printf '%s\n' "${requests[@]}" |
  RANK=0 WORLD_SIZE=1 "$1" --serve --folder "$out/saved" --layers 1 --width 16 --batch 2 >"$out/answers"
cat "$out/answers"
[ "$(grep -c '"seconds"' "$out/answers")" = ${#requests[@]} ]
