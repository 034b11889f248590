#!/usr/bin/env bash
# Fails if production source knows the simulated GPU: what runs on it must be what runs on a real one.
# Allowed are src/simgpu itself and the launch header, kernels/cuda/launch.hpp.
#
#   scripts/check_simulation.sh [ROOT]       check the tree (default: this checkout)
#   scripts/check_simulation.sh --self-test  plant violations in a temporary tree and see them caught
set -euo pipefail
here=$(dirname "$0")

# Its names, and its build option, in whatever form a conditional or an include would use them.
pattern='simgpu|SIMGPU|LOCKSTEP_SIM|WITH_SIM|SIMULATED'

violations() {
  (cd "$1" && grep -rnE "$pattern" include src kernels examples \
    --include='*.hpp' --include='*.cpp' --include='*.cu' --include='*.h' --include='*.def' 2>/dev/null |
    grep -vE '^(src/simgpu/|kernels/cuda/launch\.hpp:)') || true
}

self_test() {
  root=$(mktemp -d)
  trap 'rm -rf "$root"' EXIT
  mkdir -p "$root"/{src/simgpu,src/memory,kernels/cuda,include}
  echo '#include "simgpu/engine/report.hpp"' | tee "$root"/src/simgpu/a.cpp \
    "$root"/kernels/cuda/launch.hpp "$root"/src/memory/planted.cpp >/dev/null
  echo '#ifdef LOCKSTEP_SIMULATED' >"$root"/include/planted.hpp
  local found
  found=$(violations "$root" | cut -d: -f1 | sort | tr '\n' ' ')
  [ "$found" = 'include/planted.hpp src/memory/planted.cpp ' ] && return
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
  echo "simulation: the lines above name the simulated GPU outside src/simgpu and kernels/cuda/launch.hpp"
  exit 1
fi
echo "simulation: production source does not know it"
