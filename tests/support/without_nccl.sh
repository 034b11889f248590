#!/usr/bin/env bash
# A build for GPUs without NCCL: it configures, builds, and takes the way through the host by itself.
#
#   without_nccl.sh SOURCE BUILD [CMAKE ARGUMENT...]   builds in BUILD what a job needs, and runs one
#                                                      of two ranks on two simulated GPUs
set -euo pipefail
source_folder=$1 build=$2
shift 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive

expect() { # expect COUNT WORDS: so many lines of the output have the words
  local count
  count=$(grep -cF -- "$2" <<<"$output") || true
  if [ "$count" != "$1" ]; then
    printf '%s lines, not %s, say "%s":\n%s\n' "$count" "$1" "$2" "$output"
    exit 1
  fi
}

output=$(cmake -S "$source_folder" -B "$build" -DLOCKSTEP_CUDA=SIMULATED -DLOCKSTEP_NCCL=OFF "$@" 2>&1)
expect 1 "no NCCL in this build (LOCKSTEP_NCCL is OFF)"
cmake --build "$build" --target comm_job_program -j2
output=$(LOCKSTEP_SIM_DEVICES=2 mpirun --bind-to none -np 2 "$build/bin/comm_job_program" sum --device cuda 2>&1)
expect 1 "there is no NCCL in this build: GPUs exchange their data through the host, over shm"
expect 2 "(shm, staged)"
expect 2 "sum 1, half 1"
echo "the job ran through the host"
