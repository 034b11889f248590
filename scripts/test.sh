#!/usr/bin/env bash
# Dependencies, build, test suite. Ends with ctest's summary.
#
#   scripts/test.sh                          all tests but those labelled slow: those that need a GPU
#                                            run on the simulated one, and before that on the GPU of
#                                            this machine, if it has one
#   scripts/test.sh --only LABEL             cpu, mpi, sim, check or slow (minutes each)
#   scripts/test.sh --only gpu               what needs a GPU, on a real one, in build
#                                            (or LOCKSTEP_BUILD_DIR)
#   scripts/test.sh --sanitize address       the suite under the address and undefined-behaviour
#                                            sanitizers, in build-asan
#   scripts/test.sh --sanitize thread        under the thread sanitizer: ranks are threads, no MPI
#
# LOCKSTEP_SIM_BUILD_DIR: the suite's build directory, which has the simulated GPU (default build-sim).
source "$(dirname "$0")/lib.sh"

selection=(-LE '^slow$')
sanitize=
only=
select_label() {
  only=$1
  case $1 in
    cpu | mpi | gpu | sim | check) selection=(-L "^$1\$" -LE '^slow$') ;;
    slow) selection=(-L '^slow$') ;;
    *) fail "--only takes cpu, mpi, gpu, sim, check or slow, not '$1'" ;;
  esac
}
while [ $# -gt 0 ]; do
  case $1 in
    --only) select_label "${2:?--only needs a label}" && shift 2 ;;
    --sanitize) sanitize=${2:?--sanitize needs address or thread} && shift 2 ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
done

test_dir=${LOCKSTEP_SIM_BUILD_DIR:-build-sim}
preset=(--preset sim)
case $sanitize in
  '') ;;
  address) test_dir=${LOCKSTEP_BUILD_DIR:-build-asan} && preset=(--preset asan) ;;
  thread) test_dir=${LOCKSTEP_BUILD_DIR:-build-tsan} && preset=(--preset tsan) ;;
  *) fail "--sanitize takes address or thread, not '$sanitize'" ;;
esac
if [ -n "$sanitize" ] && { [ "$only" = sim ] || [ "$only" = gpu ]; }; then
  fail "GPU code cannot be combined with sanitizers"
fi
if [ "$only" = gpu ]; then test_dir=$build_dir && preset=(); fi
targets=()
if [ "$only" = sim ]; then targets=(lockstep_sim_tests); fi

need_dependencies
status=0
# On the GPU of this machine, first.
if [ -z "$only$sanitize" ] && has_gpu; then
  LOCKSTEP_SAY_NEXT=0 scripts/test.sh --only gpu || status=$?
  failed_dir=$build_dir
fi

configure "$test_dir" "${preset[@]}" -DLOCKSTEP_BUILD_TESTS=ON
if grep -q '^LOCKSTEP_BUILD_TESTS:BOOL=OFF' "$test_dir/CMakeCache.txt"; then
  cmake -B "$test_dir" -DLOCKSTEP_BUILD_TESTS=ON
fi
say "Building the tests in $test_dir"
build "$test_dir" "${targets[@]}"

say "Running the tests"
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1}
export ASAN_OPTIONS=${ASAN_OPTIONS:-allocator_may_return_null=1}
# The pool and the slabs hide overruns of their blocks from the sanitizers.
if [ -n "$sanitize" ]; then export LOCKSTEP_POOL=${LOCKSTEP_POOL:-off}; fi
# What of the GPU code the tests reach is recorded where all tests on the simulated GPU run.
recorded=
if [ -z "$sanitize" ] && { [ -z "$only" ] || [ "$only" = sim ]; }; then
  recorded=$(realpath "$test_dir")/sim_coverage.txt
  rm -f "$recorded"
  export LOCKSTEP_SIM_COVERAGE=$recorded
fi
ctest --test-dir "$test_dir" --parallel "$(test_jobs)" --output-on-failure --no-tests=error \
  "${selection[@]}" || { status=$? && failed_dir=$test_dir; }
# Told only if it is not all, so that ctest's summary ends.
if [ -n "$recorded" ] && [ "$status" = 0 ]; then
  report=$(LOCKSTEP_SIM_BUILD_DIR=$test_dir scripts/sim_coverage.sh "$recorded" 2>&1) ||
    { status=$? && failed_dir=$test_dir && printf '%s\n' "$report"; }
fi
if [ "$status" = 0 ]; then
  next "scripts/quickstart.sh trains a model; docs/extending.md shows how to add an op"
else
  next "ctest --test-dir $failed_dir --rerun-failed --output-on-failure"
fi
exit "$status"
