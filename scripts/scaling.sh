#!/usr/bin/env bash
# Measures how training scales over ranks, on CPUs or GPUs: weak scaling (the same batch on each rank)
# and strong scaling (the same batch over all). Prints a table that says what limits each point.
#
#   scripts/scaling.sh                        1, 2, 4, ... ranks, up to the GPUs, or cores, of this machine
#   scripts/scaling.sh --ranks "1 2 3"        these
#   scripts/scaling.sh --hosts a:8,b:8        over hosts, as mpirun's --host; --ranks must be given
#   --mode weak|strong|both (both)   --device auto|cpu|cuda (auto)   --dtype f32|bf16 (f32)
#   --batch N     a rank's, weak (4);  --global-batch N  of all ranks, strong (about 4 for each of the most ranks)
#   --rounds N    (20)               --bucket-mb N     buckets of so many MiB
#   --out DIR     scaling.jsonl, scaling.csv and scaling.svg go there (BUILD_DIR/scaling)
#
# MPIRUN_ARGS adds arguments of mpirun. Leave the machine alone meanwhile: figures are times.
source "$(dirname "$0")/lib.sh"

ranks= hosts= mode=both device=auto batch=4 global_batch= out=$build_dir/scaling
benchmark_options=()
while [ $# -gt 0 ]; do
  case $1 in
    --ranks) ranks=${2:?} ;;
    --hosts) hosts=${2:?} ;;
    --mode) mode=${2:?} ;;
    --device) device=${2:?} ;;
    --batch) batch=${2:?} ;;
    --global-batch) global_batch=${2:?} ;;
    --rounds | --bucket-mb | --dtype) benchmark_options+=("$1" "${2:?}") ;;
    --out) out=$(from_caller "${2:?}") ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift 2
done
case $mode in weak | strong | both) ;; *) fail "--mode takes weak, strong or both, not '$mode'" ;; esac
for count in $ranks; do
  [[ $count =~ ^[1-9][0-9]*$ ]] || fail "--ranks takes numbers from 1 on, not '$count'"
done
[ -z "$hosts" ] || [ -n "$ranks" ] || fail "--hosts needs --ranks, the numbers of ranks to measure"

places() { # how many ranks have a GPU, or a core, to themselves
  if [ "$device" = cpu ] || ! has_gpu; then
    nproc
  elif [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then  # a list that ends where one is no device
    awk -F, '{ while (n < NF && $(n + 1) != "" && $(n + 1) !~ /^-/) n++ } END { print n > 0 ? n : 1 }' <<<"$CUDA_VISIBLE_DEVICES"
  else
    nvidia-smi -L | grep -c '^GPU' || true
  fi
}
powers_of_two() { for ((n = 1; n <= $1; n *= 2)); do printf '%d ' "$n"; done; }
[ -n "$ranks" ] || ranks=$(powers_of_two "$(places)")
largest=$(tr ' ' '\n' <<<"$ranks" | sort -n | tail -1)
divides_by_all() { for count in $ranks; do [ $(($1 % count)) = 0 ] || return 1; done; }
if [ -z "$global_batch" ]; then
  global_batch=$((largest * 4))
  until divides_by_all "$global_batch"; do global_batch=$((global_batch + largest)); done
fi

if [ -n "${LOCKSTEP_SCALING_PROGRAM:-}" ]; then
  program=$(from_caller "$LOCKSTEP_SCALING_PROGRAM")
else
  program=$build_dir/bin/benchmark_scaling
  need_dependencies
  configure "$build_dir"
  build "$build_dir" benchmark_scaling
fi

# A rank a core where there are enough, with its memory near; else wherever the system puts it.
binding() {
  if [ -z "$hosts" ] && [ "$1" -gt "$(nproc)" ]; then echo "--bind-to none"; else echo "--bind-to core"; fi
}
measure() { # measure MODE RANKS BATCH
  # shellcheck disable=SC2046,SC2086
  mpirun -np "$2" $(binding "$2") ${hosts:+--host "$hosts"} ${MPIRUN_ARGS:-} "$program" --json \
    --mode "$1" --batch "$3" --device "$device" "${benchmark_options[@]}" | tee -a "$lines"
}

mkdir -p "$out"
lines=$out/scaling.jsonl
: >"$lines"
for count in $ranks; do
  say "$count rank(s)"
  if [ "$mode" != strong ]; then measure weak "$count" "$batch"; fi
  if [ "$mode" != weak ]; then measure strong "$count" "$global_batch"; fi
done
say "Results"
python3 scripts/scaling_report.py "$lines" --out "$out"
next "docs/data-parallel.md says what the columns mean, and what to do about each limit"
