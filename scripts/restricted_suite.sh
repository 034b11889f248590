#!/usr/bin/env bash
# The suite as a lesser machine would run it, the simulated GPU's tests and all, in a build that is
# there: LOCKSTEP_SIM_BUILD_DIR, build-sim by default. Only slow tests are left out, and checks of the
# source tree, which no processor changes: each takes as long as the suite, on one core far longer.
#
#   scripts/restricted_suite.sh              all of these
#   scripts/restricted_suite.sh baseline     CPU code of x86-64 alone, oneDNN's of SSE 4.1
#   scripts/restricted_suite.sh avx2         CPU code and oneDNN's of AVX2
#   scripts/restricted_suite.sh no-amx       CPU code and oneDNN's without AMX
#   scripts/restricted_suite.sh one-core     one core
#   scripts/restricted_suite.sh avx2 -R Gpu  what follows is ctest's
#
# What the machine has not got is said and ends with code 77: ctest shows it as skipped.
source "$(dirname "$0")/lib.sh"

has() { grep -qwE "$1" /proc/cpuinfo; }
skip() {
  echo "skipped: $*"
  exit 77
}

test_dir=${LOCKSTEP_SIM_BUILD_DIR:-build-sim}
ctest_options=("${@:2}")

run_suite() {
  say "$1"
  shift
  env "$@" ctest --test-dir "$test_dir" --parallel "${cores:-$(nproc)}" --output-on-failure \
    --no-tests=error -LE '^(slow|check)$' "${ctest_options[@]}"
}

# Versions of oneDNN differ in which name they read.
onednn_up_to() { echo "DNNL_MAX_CPU_ISA=$1" "ONEDNN_MAX_CPU_ISA=$1"; }

# shellcheck disable=SC2046
run_restricted() {
  case $1 in
    baseline)
      run_suite "CPU code of x86-64 alone" LOCKSTEP_CPU_ISA=baseline $(onednn_up_to SSE41) ;;
    avx2)
      has avx2 || skip "this machine has no AVX2"
      run_suite "CPU code of AVX2" LOCKSTEP_CPU_ISA=avx2 $(onednn_up_to AVX2) ;;
    no-amx)
      has amx_tile || skip "this machine has no AMX"
      run_suite "No AMX" LOCKSTEP_CPU_AMX=0 $(onednn_up_to AVX512_CORE_BF16) ;;
    one-core)
      command -v taskset >/dev/null || skip "there is no taskset"
      cores=1 run_suite "One core" taskset -c "$(first_core)" ;;
    *) fail "baseline, avx2, no-amx or one-core, not '$1'" ;;
  esac
}

# The first core that this process may use.
first_core() { taskset -cp $$ | sed 's/.*: *//; s/[,-].*//'; }

if [ $# -ge 1 ]; then
  run_restricted "$1"
  exit
fi
status=0
for restriction in baseline avx2 no-amx one-core; do
  "$script" "$restriction" || { code=$? && [ $code = 77 ] || status=$code; }
done
exit "$status"
