#!/usr/bin/env bash
# Fails unless the tests on the simulated GPU reach every kernel of the library (each __global__
# function, in at least one instantiation) and every function of the CUDA runtime, NCCL and cuBLASLt
# that the library imports, or of the driver that it asks for by name. Calls by the simulated GPU's own tests do not count.
#
#   scripts/sim_coverage.sh          run the tests labelled sim in build-sim, then report
#   scripts/sim_coverage.sh FILE     report on a run that LOCKSTEP_SIM_COVERAGE=FILE recorded
#
# LOCKSTEP_SIM_BUILD_DIR: the build directory (default build-sim), which must hold a build.
source "$(dirname "$0")/lib.sh"

build_dir=${LOCKSTEP_SIM_BUILD_DIR:-build-sim}
library=$build_dir/liblockstep.a
[ -e "$library" ] || fail "$library is missing; scripts/test.sh --only sim builds it"

recorded=${1:-}
if [ -z "$recorded" ]; then
  recorded=$(realpath "$build_dir")/sim_coverage.txt
  rm -f "$recorded"
  LOCKSTEP_SIM_COVERAGE=$recorded ctest --test-dir "$build_dir" --parallel "$(nproc)" \
    --output-on-failure --no-tests=error -L '^sim$' -LE '^slow$'
fi
python3 scripts/sim_coverage.py "$library" "$recorded"
