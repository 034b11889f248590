#!/usr/bin/env bash
# Builds the benchmarks, runs them and prints one table from their JSON lines.
#
#   scripts/bench.sh               all benchmarks
#   scripts/bench.sh NAME...       those whose program name contains one of the words
#
# The lines are kept in BUILD_DIR/benchmarks.jsonl.
source "$(dirname "$0")/lib.sh"

for word in "$@"; do
  case $word in
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
  esac
  basename -a benchmarks/*.c* benchmarks/mpi/*.cpp | sed 's/^/benchmark_/; s/\.c.*$//' | grep -qF -- "$word" ||
    fail "no benchmark matches '$word': there are benchmarks/*.cpp, benchmarks/mpi/*.cpp"
done

need_dependencies
configure "$build_dir"
if grep -q '^LOCKSTEP_BUILD_BENCHMARKS:BOOL=OFF' "$build_dir/CMakeCache.txt"; then
  cmake -B "$build_dir" -DLOCKSTEP_BUILD_BENCHMARKS=ON
fi
build "$build_dir"

wanted() {
  local program=$1 word
  shift
  [ $# -gt 0 ] || return 0
  for word in "$@"; do [[ $program == *"$word"* ]] && return 0; done
  return 1
}

lines=$build_dir/benchmarks.jsonl
: >"$lines"
for program in "$build_dir"/bin/benchmark_*; do
  name=$(basename "$program")
  # benchmark_allreduce prints the columns of nccl-tests and wants mpirun: run it by itself.
  # benchmark_peer_rank works on request: benchmarks/peers/data_parallel.py runs it.
  case $name in benchmark_allreduce | benchmark_peer_rank) continue ;; esac
  if [ ! -x "$program" ] || ! wanted "$name" "$@"; then
    continue
  fi
  say "$name"
  "$program" --json | tee -a "$lines"
done
[ -s "$lines" ] || fail "no benchmark matches: $*"
say "Results"
python3 scripts/bench_table.py "$lines"
next "docs/performance.md explains the columns and holds the last recorded table"
