#!/usr/bin/env bash
# Everything that needs a GPU, in one call of at most 9 minutes, the most valuable first: what the machine can
# do, the gpu tests, whole steps and each of their kernels beside what is predicted, PyTorch, sanitizers.
#
#   scripts/gpu_check.sh [--bundle ARCHIVE] [--build DIR] [--minutes N] [--stages LIST] [--quick]
#
# Runs the programs of a bundle that scripts/gpu_bundle.sh made elsewhere (build-gpu/bundle.tar.gz, where it is),
# or those of a DIR that is named and built; else it builds them here first, for this machine's GPU (in build).
# Results go to the folder that OUT names as they are found, else to benchmarks/results. Needs Python 3.9.
# --quick takes sizes and tests that the simulated GPU can do. Exit code: 0, 1 if something failed or nothing ran, 2 without
# a GPU, 3 for a wrong call.
set -euo pipefail

[ -z "${OUT:-}" ] || OUT=$(realpath -m "$OUT")
bundle='' build='' rest=()
while [ $# -gt 0 ]; do
  case $1 in
    --bundle | --build)
      if [ $# -lt 2 ]; then echo "gpu_check: $1 needs a value" >&2 && exit 3; fi
      if [ "$1" = --build ]; then build=$(realpath -m "$2"); else bundle=$(realpath -m "$2"); fi
      if [ -n "$bundle" ] && [ ! -f "$bundle" ]; then echo "gpu_check: there is no bundle $bundle" >&2 && exit 3; fi
      shift ;;
    --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
    *) rest+=("$1") ;;
  esac
  shift
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
say() { echo "gpu_check: $*"; }

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
  say "needs python3, 3.9 or later; nothing was checked" >&2
  exit 3
fi

# This script of an unpacked bundle runs it.
if [ -e bundle.json ]; then exec python3 scripts/gpu/check.py --root . "${rest[@]}"; fi
if [ -z "$bundle$build" ] && [ -e build-gpu/bundle.tar.gz ]; then bundle="build-gpu/bundle.tar.gz"; fi
if [ -n "$bundle" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  tar -xzf "$bundle" -C "$folder"
  OUT=${OUT:-$PWD/benchmarks/results/gpu-$(date -u +%Y%m%d-%H%M%S)} \
    python3 "$folder/lockstep-gpu/scripts/gpu/check.py" --root "$folder/lockstep-gpu" "${rest[@]}"
  exit
fi

# A build that was named is taken as it is.
if [ ! -x "$build/bin/lockstep_info" ]; then
  build=${build:-${LOCKSTEP_BUILD_DIR:-build}}
  if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    say "no NVIDIA GPU on this machine; nothing was checked" >&2
    exit 2
  fi
  architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
  scripts/get_cudnn_frontend.sh || say "going on without cuDNN plans"
  cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_CUDA=ON -DLOCKSTEP_CUDA_ARCHITECTURES="$architecture"
  cmake --build "$build" -j "$(nproc)"
fi
exec python3 scripts/gpu/check.py --root . --programs "$build/bin" "${rest[@]}"
