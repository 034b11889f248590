#!/usr/bin/env bash
# Predicts training steps of GPT-2 124M, ResNet-50, Llama 3.2 1B and ViT-B/16 on a GPU that need not be here: profiles
# each on the simulated GPU, and leaves a table, and for each step a report, a drawing and a Chrome trace. Some ten
# minutes and 12 GB of memory; docs/performance-gpu.md says what is predicted, and how far to trust it.
#
#   scripts/predict_steps.sh [--device h100] [--bin build-sim/bin] [FOLDER]      FOLDER: build-sim/predicted
#   scripts/predict_steps.sh --only gpt2-bf16,llama                              some of them
source "$(dirname "$0")/lib.sh"

steps=gpt2-bf16,gpt2-autocast,resnet50,llama,vit-bf16
device=h100 bin=build-sim/bin folder=build-sim/predicted only=$steps
while [ $# -gt 0 ]; do
  case $1 in
    --device) device=${2:?} && shift ;;
    --bin) bin=$(from_caller "${2:?}") && shift ;;
    --only) only=${2:?} && shift ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
    *) folder=$(from_caller "$1") ;;
  esac
  shift
done
IFS=, read -ra wanted <<<"$only"
[ ${#wanted[@]} -gt 0 ] || fail "--only takes steps: $steps"
for step in "${wanted[@]}"; do
  case ,$steps, in *",$step,"*) ;; *) fail "no step is called '$step'; there are $steps" ;; esac
done
python3 simgpu/profile/sim_profile.py devices "$device" >/dev/null 2>&1 ||
  fail "no device is called '$device'; python3 simgpu/profile/sim_profile.py devices lists those there are"
if [ ! -x "$bin/benchmark_model_step" ]; then
  need_dependencies
  configure build-sim --preset sim
  build build-sim benchmark_model_step
fi
mkdir -p "$folder"

profile() { # NAME OPTION...
  say "Profiling $1"
  LOCKSTEP_SIM_PROFILE=$folder/$1.jsonl LOCKSTEP_SIM_EXECUTE=sample LOCKSTEP_SIM_DEVICES=1 \
    LOCKSTEP_SIM_MEMORY=85899345920 "$bin/benchmark_model_step" --device cuda --steps 3 "${@:2}" >"$folder/$1.log"
}
# Two microseconds of the host's own work before a call: what it takes beside the simulation says nothing.
predict() { python3 simgpu/profile/sim_profile.py "$1" "${@:2}" --device "$device" --host-gap 2; }
pages() { # NAME
  predict report "$folder/$1.jsonl" --rows 40 --svg "$folder/$1.svg" --trace "$folder/$1.trace.json" >"$folder/$1.txt"
}

rows=()
row() { # NAME TITLE OPTION...
  case ,$only, in *",$1,"*) ;; *) return 0 ;; esac
  profile "$1" "${@:3}"
  pages "$1"
  rows+=("$2=$folder/$1.jsonl")
}
row gpt2-bf16 "GPT-2 124M, 64 x 1,024 tokens, in bf16" --model gpt2 --batch 64 --dtype bf16
row gpt2-autocast "GPT-2 124M, under autocast" --model gpt2 --batch 64
row resnet50 "ResNet-50, 256 images" --model resnet50 --batch 256
row vit-bf16 "ViT-B/16, 256 images, in bf16" --model vit --dtype bf16 --batch 256
# All 16 layers of a Llama would take 20 GB here: a step of 2, and 7 times what 2 more add.
case ,$only, in *,llama,*)
  for layers in 2 4; do
    profile "llama-$layers-layers" --model llama --dtype bf16 --batch 4 --context 2048 --layers "$layers"
  done
  pages llama-4-layers
  rows+=("Llama 3.2 1B, 4 x 2,048 tokens, in bf16=$folder/llama-2-layers.jsonl,$folder/llama-4-layers.jsonl,7")
  ;;
esac
say "Predicted for $device"
predict table "${rows[@]}" | tee "$folder/table.md"
next "$folder/*.txt says where time goes, *.svg draws it, *.trace.json opens in Perfetto"
