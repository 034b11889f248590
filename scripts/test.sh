#!/usr/bin/env bash
# Dependencies, build, test suite. Ends with ctest's summary.
#
#   scripts/test.sh                          all tests but those labelled slow
#   scripts/test.sh --only LABEL             cpu, mpi, gpu, check or slow (minutes each)
#   scripts/test.sh --only sim               the tests that need a GPU, on the simulated one, in
#                                            build-sim (or LOCKSTEP_SIM_BUILD_DIR)
#   scripts/test.sh --sanitize address       the suite under the address and undefined-behaviour
#                                            sanitizers, in build-asan
#   scripts/test.sh --sanitize thread        under the thread sanitizer: ranks are threads, no MPI
#
# LOCKSTEP_BUILD_DIR: the build directory (default build). LOCKSTEP_CUDA=ON: GPU code too, where
# there is no GPU.
source "$(dirname "$0")/lib.sh"

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
selection=(-LE '^slow$')
sanitize=
only=
select_label() {
  only=$1
  case $1 in
    sim) selection=(-L '^sim$' -LE '^slow$') ;;
    cpu | mpi | gpu | check) selection=(-L "^$1\$" -LE '^slow$') ;;
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

preset=()
case $sanitize in
  '') ;;
  address) build_dir=${LOCKSTEP_BUILD_DIR:-build-asan} && preset=(--preset asan) ;;
  thread) build_dir=${LOCKSTEP_BUILD_DIR:-build-tsan} && preset=(--preset tsan) ;;
  *) fail "--sanitize takes address or thread, not '$sanitize'" ;;
esac

targets=()
recorded=
if [ "$only" = sim ]; then
  if [ -n "$sanitize" ]; then fail "the simulated GPU cannot be combined with sanitizers"; fi
  build_dir=${LOCKSTEP_SIM_BUILD_DIR:-build-sim} && preset=(--preset sim)
  targets=(lockstep_sim_tests)
  mkdir -p "$build_dir"
  recorded=$(realpath "$build_dir")/sim_coverage.txt
fi

need_dependencies
configure "$build_dir" "${preset[@]}" -DLOCKSTEP_BUILD_TESTS=ON
if grep -q '^LOCKSTEP_BUILD_TESTS:BOOL=OFF' "$build_dir/CMakeCache.txt"; then
  cmake -B "$build_dir" -DLOCKSTEP_BUILD_TESTS=ON
fi
say "Building the tests in $build_dir"
build "$build_dir" "${targets[@]}"

say "Running the tests"
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1}
export ASAN_OPTIONS=${ASAN_OPTIONS:-allocator_may_return_null=1}
# The pool and the slabs hide overruns of their blocks from the sanitizers.
if [ -n "$sanitize" ]; then export LOCKSTEP_POOL=${LOCKSTEP_POOL:-off}; fi
status=0
if [ -n "$recorded" ]; then
  rm -f "$recorded"
  export LOCKSTEP_SIM_COVERAGE=$recorded
fi
ctest --test-dir "$build_dir" --parallel "$(nproc)" --output-on-failure --no-tests=error \
  "${selection[@]}" || status=$?
# What of the GPU code the tests reached: told only if it is not all, so that ctest's summary ends.
if [ -n "$recorded" ] && [ "$status" = 0 ]; then
  report=$(LOCKSTEP_SIM_BUILD_DIR=$build_dir scripts/sim_coverage.sh "$recorded" 2>&1) || status=$?
  if [ "$status" != 0 ]; then printf '%s\n' "$report"; fi
fi
failed_dir=$build_dir
# The same code on the simulated GPU.
if [ -z "$only$sanitize" ]; then
  LOCKSTEP_SAY_NEXT=0 scripts/test.sh --only sim || {
    if [ "$status" = 0 ]; then failed_dir=${LOCKSTEP_SIM_BUILD_DIR:-build-sim}; fi
    status=1
  }
fi
if [ "$status" = 0 ]; then
  next "scripts/quickstart.sh trains a model; docs/extending.md shows how to add an op"
else
  next "ctest --test-dir $failed_dir --rerun-failed --output-on-failure"
fi
exit "$status"
