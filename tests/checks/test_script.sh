#!/usr/bin/env bash
# scripts/test.sh ends with what to run after a failure: in the build folder of the stage that failed.
# It runs in a copy of scripts/ with a cmake and a ctest that only fail where they shall.
set -euo pipefail
unset LOCKSTEP_SIM_BUILD_DIR LOCKSTEP_CMAKE_ARGS
scripts=$(realpath "$(dirname "$0")/../../scripts")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{scripts,bin,build,build-sim}
cp "$scripts"/{test,lib}.sh "$root/scripts"
cd "$root"
touch build/{build.ninja,CMakeCache.txt} build-sim/{build.ninja,CMakeCache.txt}
printf '#!/bin/sh\n' | tee scripts/{setup,sim_coverage}.sh bin/cmake >/dev/null
# Fails in the folder that FAILS names: ctest --test-dir FOLDER ...
printf '#!/bin/sh\ncase " $FAILS " in *" $2 "*) exit 8 ;; esac\n' >bin/ctest
# A machine with a GPU, or without one.
echo 'has_gpu() { [ "$NVIDIA" = yes ]; }' >>scripts/lib.sh
chmod +x scripts/*.sh bin/*

# expect FAILS LINE: the last line of a run.
expect() {
  local last
  last=$(FAILS=$1 LOCKSTEP_BUILD_DIR=build LOCKSTEP_SAY_NEXT=1 PATH="$root/bin:$PATH" \
    scripts/test.sh | tail -n 1) || true
  case $last in *"$2"*) return ;; esac
  echo "where '$1' fails, the last line is: $last"
  exit 1
}
export NVIDIA=no
expect '' 'Next: scripts/quickstart.sh'
expect 'build' 'Next: scripts/quickstart.sh'
expect 'build-sim' 'Next: ctest --test-dir build-sim --rerun-failed'
export NVIDIA=yes
expect '' 'Next: scripts/quickstart.sh'
expect 'build' 'Next: ctest --test-dir build --rerun-failed'
expect 'build-sim' 'Next: ctest --test-dir build-sim --rerun-failed'

# They say how to use them wherever the caller stands, and end where an option is none of theirs.
cd "$scripts"
for name in test bench scaling predict_steps; do
  timeout 20 "./$name.sh" --help | grep -q "scripts/$name.sh" || { echo "$name.sh --help says nothing" && exit 1; }
  status=0
  timeout 20 "./$name.sh" --nonsense >/dev/null 2>&1 || status=$?
  [ "$status" = 2 ] || { echo "$name.sh --nonsense ends with $status" && exit 1; }
done
