#!/usr/bin/env bash
# Fails if production source knows the simulated GPU: what runs on it must be what runs on a real one.
# Allowed is the launch header, kernels/cuda/launch.hpp. To ask for nvcc is to ask for the simulated
# GPU's absence: that is left to few headers, for instructions that have a plain form beside them.
#
#   scripts/check_simulation.sh [ROOT]       check the tree (default: this checkout)
#   scripts/check_simulation.sh --self-test  plant violations in a temporary tree and see them caught
set -euo pipefail
here=$(dirname "$0")

# Its names, and its build option, in whatever form a conditional or an include would use them.
pattern='simgpu|SIMGPU|LOCKSTEP_SIM|WITH_SIM|SIMULATED'

compiler='__CUDACC|__NVCC__|__CUDA_ARCH'
may_ask_for_nvcc='include/lockstep/core/macros|kernels/functional/(math|group)|kernels/cuda/(async_copy|launch|row_access|vector)'

# lines ROOT PATTERN ALLOWED: lines outside the allowed places that match.
lines() {
  (cd "$1" && grep -rnE "$2" include src kernels examples 2>/dev/null | grep -vE "^($3)") || true
}

violations() {
  lines "$1" "$pattern" 'kernels/cuda/launch\.hpp:'
  lines "$1" "$compiler" "($may_ask_for_nvcc)\.hpp:"
}

self_test() {
  root=$(mktemp -d)
  trap 'rm -rf "$root"' EXIT
  mkdir -p "$root"/{src/memory,kernels/cuda,include}
  echo '#include "engine/report.hpp"  // simgpu' | tee "$root"/kernels/cuda/launch.hpp "$root"/src/memory/planted.cpp >/dev/null
  echo '#ifdef LOCKSTEP_SIMULATED' >"$root"/include/planted.hpp
  echo '#ifdef __CUDACC__' | tee "$root"/kernels/cuda/{vector.hpp,planted.cu} >/dev/null
  local found
  found=$(violations "$root" | cut -d: -f1 | sort | tr '\n' ' ')
  [ "$found" = 'include/planted.hpp kernels/cuda/planted.cu src/memory/planted.cpp ' ] && return
  echo "self-test: reported: $found"
  return 1
}

if [ "${1:-}" = --self-test ]; then
  self_test
  exit
fi
found=$(violations "${1:-$here/..}")
if [ -n "$found" ]; then
  echo "$found"
  echo "simulation: the lines above name the simulated GPU outside simgpu/ and kernels/cuda/launch.hpp,"
  echo "simulation: or ask which compiler it is"
  exit 1
fi
echo "simulation: production source does not know it"
