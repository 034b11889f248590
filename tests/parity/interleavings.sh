#!/usr/bin/env bash
# Runs a command on simulated GPUs under several interleavings, each of which must succeed without a
# report:
#
#   interleavings.sh COUNT COMMAND...
#
# COUNT seeds, and then everything as early and as late as allowed.
set -euo pipefail
count=$1
shift

try() {
  if ! env "$1" "${@:2}" >"$output" 2>&1 || grep -q "==== simulated GPU" "$output"; then
    cat "$output"
    echo "failed with $1" >&2
    exit 1
  fi
  echo "passed with $1"
}

output=$(mktemp)
trap 'rm -f "$output"' EXIT
for ((seed = 1; seed <= count; ++seed)); do try "LOCKSTEP_SIM_SEED=$seed" "$@"; done
for order in early late; do try "LOCKSTEP_SIM_ORDER=$order" "$@"; done
