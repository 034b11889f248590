#!/usr/bin/env bash
# Trains the reference GPT-2 and compares losses, gradient norms and weights with the reference run:
#
#   parity.sh BIN GOLDEN RANKS MICRO_BATCH DTYPE DEVICE [OPTION...]
#
# BIN is the folder of the executables, GOLDEN that of the reference results, which LOCKSTEP_GOLDEN_DIR
# overrides; options go to train_gpt.
set -euo pipefail
bin=$1 golden=${LOCKSTEP_GOLDEN_DIR:-$2}/gpt2-tiny ranks=$3 micro=$4 dtype=$5 device=$6
shift 6
case $dtype in
  f64) limits=(1e-9 1e-9 1e-7) ;;
  f32) limits=(1e-5 1e-4 5e-3) ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mpirun -np "$ranks" --bind-to none "$bin/train_gpt" --init-from "$golden" \
  --tokens "$golden/expected.safetensors" --lr 4e-3 --schedule constant --warmup 0 \
  --weight-decay 0.1 --decay all --grad-clip 1.0 --dtype "$dtype" --device "$device" \
  --micro-batch "$micro" --threads 1 --save "$work/model.safetensors" --log "$work/log.jsonl" "$@"
"$bin/compare_training" "$golden/expected.safetensors" "$work/log.jsonl" \
  "$work/model.safetensors" "${limits[@]}"
