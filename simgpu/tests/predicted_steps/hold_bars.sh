#!/usr/bin/env bash
# Profiles three steps of a model on the simulated GPU, and holds the last whole one, predicted for an H100, against
# bars. Where one does not hold, the report shows why.
#
#   hold_bars.sh BENCHMARK_MODEL_STEP SIM_PROFILE BAR... -- OPTION...
set -euo pipefail

program=$1 sim_profile=$2
shift 2
bars=()
while [ "$1" != -- ]; do bars+=("$1") && shift; done
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Most blocks of kernels do not run, so no kernel counts as tested by it (scripts/sim_coverage.sh).
unset LOCKSTEP_SIM_COVERAGE
LOCKSTEP_SIM_PROFILE=$folder/step.jsonl LOCKSTEP_SIM_EXECUTE=sample LOCKSTEP_SIM_DEVICES=1 LOCKSTEP_SIM_MEMORY=85899345920 \
  "$program" --device cuda --steps 3 "$@"
# Two microseconds of the host's own work before a call: what it takes beside the simulation says nothing.
predict() { python3 "$sim_profile" "$1" "$folder/step.jsonl" --device h100 --host-gap 2 "${@:2}"; }
if ! predict check "${bars[@]}"; then
  predict report --rows 60
  exit 1
fi
