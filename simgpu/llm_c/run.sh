#!/usr/bin/env bash
# llm.c's GPT-2 training, unchanged, on simulated GPUs: a small model on one and on two, with losses compared with
# PyTorch's and what the simulated GPU finds; the profile of a step of 124 M parameters; its kernels one by one.
#
#   simgpu/llm_c/run.sh CHECKOUT [losses|profile|kernels]...     CHECKOUT: of github.com/karpathy/llm.c; default: losses
#
# Environment: LOCKSTEP_BUILD_DIR (build-sim: a build with the simulated GPU), WORK (a folder for what it makes:
# BUILD/llm_c), PYTHON (python3; without PyTorch losses are shown and not compared), DEVICE (h100: of the report).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
llm_c=$(cd "${1:?a checkout of llm.c}" && pwd)
shift
what=${*:-losses}
source "$here/../../scripts/lib.sh"
build=$(cd "${LOCKSTEP_BUILD_DIR:-build-sim}" && pwd)
work=${WORK:-$build/llm_c}
python=${PYTHON:-python3}

cmake -S "$here" -B "$work/build" -G Ninja -DLLM_C="$llm_c" -DCMAKE_PREFIX_PATH="$build" >"$work.log"
ninja -C "$work/build" -j"$(jobs)" >>"$work.log" || fail "the build failed: $work.log"
"$here/inputs.py" "$work/data"
cd "$work/data"
status=0

# findings FILE: the first line of each finding, without blocks and threads, and how many there are of it.
findings() {
  grep -aA1 '^==== simulated GPU:' "$1" | grep -vE '^(==== *|--)$' | sed -E 's/, block \(.*//; s/ at 0x[0-9a-f]+.*//' |
    paste -d' ' - - | sed 's/^==== simulated GPU: //' | sort | uniq -c || true
}

# losses NAME REFERENCE... -- COMMAND...: runs a training and compares its losses.
losses() {
  local name=$1 reference=() code=0
  shift
  while [ "$1" != -- ]; do reference+=("$1") && shift; done
  shift
  say "$name"
  timeout 1800 "$@" >"$name.out" 2>"$name.err" || code=$?
  [ $code = 0 ] || [ $code = 66 ] || { tail -5 "$name.out" "$name.err" && fail "$name ended with $code"; }
  if "$python" -c 'import torch' 2>/dev/null; then
    "$python" "$here/reference.py" "${reference[@]}" >"$name.reference"
    "$here/compare.py" "$name.reference" "$name.out" 1e-3 || status=1
  else
    grep '^step ' "$name.out"
  fi
  findings "$name.err"
}

small=(-b 2 -t 64 -a 1 -x 5 -v 100 -m 1 -s 100 -g 1 -h 0)
if [[ " $what " == *" losses "* ]]; then
  for precision in fp32 bf16; do
    own=(-e "model_$precision.bin" "${small[@]}")
    reference=()
    [ $precision = fp32 ] || reference=(--bf16)
    losses one-$precision "${reference[@]}" -- env LOCKSTEP_SIM_DEVICES=1 "../build/train_gpt2_$precision" \
      -i tokens_1.bin -j tokens_1.bin -d 128 "${own[@]}"
    [ -x "../build/train_gpt2_${precision}_mpi" ] || continue
    for stage in 0 1; do
      order=random
      # ZeRO-1 gathers weights on a stream that does not wait for their update: right only where all is done at once.
      [ $stage = 0 ] || order=early
      losses two-$precision-zero-$stage "${reference[@]}" --ranks 2 -- \
        env LOCKSTEP_SIM_ORDER="$order" mpirun -np 2 "../build/train_gpt2_${precision}_mpi" \
        -i tokens_2.bin -j tokens_2.bin -d 256 -z $stage "${own[@]}"
    done
  done
fi

# 12 layers, 64 sequences of 1,024 tokens: some minutes and GB of memory.
if [[ " $what " == *" profile "* ]]; then
  say "profile of a step"
  code=0
  LOCKSTEP_SIM_DEVICES=1 LOCKSTEP_SIM_PROFILE=$work/llm_c.jsonl LOCKSTEP_SIM_EXECUTE=sample LOCKSTEP_SIM_MEMORY=85899345920 \
    timeout 3600 ../build/train_gpt2_bf16 -i tokens_step.bin -j tokens_step.bin -e d12 -b 64 -t 1024 -d 65536 -a 1 -x 3 \
    -v 1000 -m 1 -s 1000 -g 1 -h 0 >profile.out 2>profile.err || code=$?
  [ $code = 0 ] || [ $code = 66 ] || fail "the profile's run ended with $code: $work/data/profile.err"
  "$here/../profile/sim_profile.py" report "$work/llm_c.jsonl" --device "${DEVICE:-h100}"
fi

# All variants of each of dev/cuda's files, with fewer elements: a line for each with what it says of its results.
if [[ " $what " == *" kernels "* ]]; then
  say "kernels one by one"
  ninja -C "$work/build" -k0 -j"$(jobs)" kernels >>"$work.log" || true # the one for cuDNN's headers, and the like
  for program in ../build/kernel_*; do
    for variant in {1..12}; do
      code=0
      LOCKSTEP_SIM_DEVICES=1 timeout 120 "$program" "$variant" >kernel.out 2>kernel.err || code=$?
      ! grep -qai 'invalid kernel' kernel.out || break
      verdict="ended with $code"
      ! grep -qai 'match' kernel.out || verdict="right"
      ! grep -qa 'Mismatch' kernel.out || verdict="WRONG"
      echo "$(basename "$program") $variant: $verdict"
      findings kernel.err
    done
  done
fi
exit $status
