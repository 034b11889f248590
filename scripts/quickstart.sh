#!/usr/bin/env bash
# One command from a fresh clone to a trained model: dependencies, build, then a byte-level GPT on
# this project's own documentation and sources, on two ranks. A second call starts training at once.
#
#   scripts/quickstart.sh [train_gpt option...]     options are added to those below
source "$(dirname "$0")/lib.sh"

ranks=2
threads=$(($(nproc) / ranks))
[ "$threads" -ge 1 ] || threads=1
# The main job: minutes on two cores, to a held-out loss below 2.5 nats a byte.
job=(--layers 4 --heads 4 --channels 128 --context 128 --global-batch 16 --steps 600
  --lr 3e-3 --schedule cosine --warmup 50 --sample 300 --threads "$threads")

need_dependencies
configure "$build_dir"
build "$build_dir" train_gpt

say "Training on $ranks ranks"
mpirun -np "$ranks" --bind-to none "$build_dir/bin/train_gpt" "${job[@]}" "$@"
next "scripts/test.sh runs the tests; $build_dir/bin/train_gpt --help lists what can be trained"
