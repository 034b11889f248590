# shellcheck shell=bash disable=SC2034
# shellcheck shell=bash disable=SC2034
# Shared by the scripts of this folder; sourced, not run. Goes to the root of the checkout.

set -euo pipefail
script=$(realpath -m -- "$0") caller_dir=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build_dir=${LOCKSTEP_BUILD_DIR:-build}

# Open MPI refuses root unless told otherwise, and more ranks than cores. In containers its
# single-copy transport is not permitted. OpenMP threads that spin while ranks share cores cost far
# more than they save.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

say() { printf '\n== %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
# What the comment at a script's head says of its options.
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$script"; }
# A path as it was given: from where the caller stands.
from_caller() { case $1 in /*) echo "$1" ;; *) echo "$caller_dir/$1" ;; esac }
# The last line of a script: what to do next. CI leaves it out.
next() { [ "${LOCKSTEP_SAY_NEXT:-1}" = 0 ] || printf '\nNext: %s\n' "$*"; }

# Compile jobs: one a core, but none without 1.5 GB of memory.
jobs() {
  local cores memory_kb by_memory
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)
  by_memory=$((memory_kb / 1500000))
  [ "$by_memory" -ge 1 ] || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# Tests at a time: twice as many as cores, for those that start jobs wait most of their time (for
# launchers, grace periods and each other).
test_jobs() { echo $((2 * $(nproc))); }

has_gpu() { [ -e /dev/nvidia0 ] || { command -v nvidia-smi && nvidia-smi -L; } >/dev/null 2>&1; }

# Installs what the build needs, or says what is missing. Silent when all is there.
need_dependencies() { scripts/setup.sh --quiet; }

# configure DIR [cmake argument...]: configures DIR unless that was done before; a build directory
# that exists is used as it stands. Without a preset: Release, and GPU code only where a GPU is
# (LOCKSTEP_CUDA=ON asks for it anyway). LOCKSTEP_CMAKE_ARGS adds arguments.
configure() {
  local dir=$1
  shift
  if [ -e "$dir/build.ninja" ] || [ -e "$dir/Makefile" ]; then return; fi
  local arguments=(-S . -B "$dir" -G Ninja)
  if [ "${1:-}" != --preset ]; then
    local cuda=OFF
    if has_gpu; then cuda=AUTO; fi
    arguments+=(-DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_CUDA="${LOCKSTEP_CUDA:-$cuda}")
  fi
  if command -v ccache >/dev/null; then
    arguments+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
  fi
  say "Configuring $dir"
  # shellcheck disable=SC2086
  cmake "${arguments[@]}" "$@" ${LOCKSTEP_CMAKE_ARGS:-}
}

# build DIR [target...]: everything, or the targets named.
build() {
  local dir=$1
  shift
  cmake --build "$dir" --parallel "$(jobs)" ${1:+--target "$@"}
}
