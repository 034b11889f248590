#!/usr/bin/env bash
# Runs programs with planted faults on the simulated GPU, which must report each of them, and the
# same programs without their faults, of which it must report nothing. Ends with 1 if it does not.
#
#   scripts/planted_faults.sh                 the table: each fault, what is expected and reported
#   scripts/planted_faults.sh --seeds 100     and all programs without faults over 100 seeds
#   scripts/planted_faults.sh --only NAME     one of them
#   scripts/planted_faults.sh NAME [--off]    one program as a user would run it: the whole report
#   scripts/planted_faults.sh --list          the names
#
# LOCKSTEP_SIM_BUILD_DIR: the build directory (default build-sim).
source "$(dirname "$0")/lib.sh"

case ${1:-} in
  -h | --help) usage && exit 0 ;;
esac
build_dir=${LOCKSTEP_SIM_BUILD_DIR:-build-sim}
configure "$build_dir" --preset sim -DLOCKSTEP_BUILD_TESTS=ON
build "$build_dir" planted_faults
exec "$build_dir/bin/planted_faults" "$@"
