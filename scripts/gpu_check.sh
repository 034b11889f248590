#!/usr/bin/env bash
# Everything that needs a GPU, in one call: build for this machine's GPU, the gpu tests, the same
# under compute-sanitizer, the GPU benchmarks. Results go to benchmarks/results/.
set -euo pipefail
cd "$(dirname "$0")/.."

build="${LOCKSTEP_BUILD_DIR:-build}"
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  echo "gpu_check: no NVIDIA GPU on this machine; nothing was checked" >&2
  exit 2
fi

gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
mkdir -p benchmarks/results
result="benchmarks/results/gpu-$(date -u +%Y%m%d-%H%M%S).txt"
exec > >(tee "$result") 2>&1
echo "gpu_check: $gpu (sm_$architecture), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
nvidia-smi --query-gpu=driver_version,memory.total,clocks.max.sm --format=csv

scripts/get_cudnn_frontend.sh || echo "gpu_check: going on without cuDNN plans"
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_CUDA=ON \
  -DLOCKSTEP_CUDA_ARCHITECTURES="$architecture"
cmake --build "$build" -j "$(nproc)"

failures=0
# CI then asks cuDNN for this GPU's plans without having one.
if [ -x "$build/bin/describe_gpu" ]; then
  mkdir -p tests/data/gpus
  description="tests/data/gpus/$(tr -cs 'A-Za-z0-9\n' '-' <<<"$gpu").cudnn"
  if "$build/bin/describe_gpu" >"$description.new"; then
    mv "$description.new" "$description"
    echo "gpu_check: wrote $description; commit it"
  else
    rm -f "$description.new"
    failures=1
  fi
fi
ctest --test-dir "$build" -L gpu --output-on-failure || failures=1
ctest --test-dir "$build" -R 'Gpu\.Slow' --output-on-failure || failures=1

if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck; do
    for test in runtime contract; do
      [ -x "$build/bin/test_$test" ] || continue
      echo "gpu_check: compute-sanitizer --tool $tool test_$test"
      compute-sanitizer --tool "$tool" --error-exitcode 1 --log-file /dev/stdout \
        "$build/bin/test_$test" --gtest_filter='*Gpu*:*/cuda*' --gtest_brief=1 || failures=1
    done
  done
else
  echo "gpu_check: compute-sanitizer is not installed; skipped"
fi

for benchmark in "$build"/bin/benchmark_*; do
  case "$benchmark" in
    *allreduce* | *peer_rank* | *'*'*) continue ;;
  esac
  echo "gpu_check: $benchmark"
  "$benchmark" --json --device cuda || echo "gpu_check: $benchmark has no GPU case or failed"
done

[ "$failures" -eq 0 ] || { echo "gpu_check: FAILED; see $result"; exit 1; }
echo "gpu_check: passed; take what it covered out of docs/gpu-unverified.md and commit $result"
