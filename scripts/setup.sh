#!/usr/bin/env bash
# Installs what building, testing and checking lockstep needs, from Debian's or Ubuntu's archive.
# Without root it says what to install. What is present, in whatever way, is left alone.
#
#   scripts/setup.sh [--quiet]     --quiet: no output when nothing is missing
source "$(dirname "$0")/lib.sh"

# package: a command, or a file below one of the usual prefixes, that shows that it is there
requirements='
  g++:               g++
  make:              make
  cmake:             cmake
  ninja-build:       ninja
  git:               git
  python3:           python3
  python3-pip:       pip3
  libopenmpi-dev:    mpicxx
  openmpi-bin:       mpirun
  libdnnl-dev:       include/dnnl.hpp
  nlohmann-json3-dev: include/nlohmann/json.hpp
  libcli11-dev:      include/CLI/CLI.hpp
  libboost-context-dev: include/boost/context/detail/fcontext.hpp
  zlib1g-dev:        include/zlib.h
  libgtest-dev:      include/gtest/gtest.h
  libgmock-dev:      include/gmock/gmock.h
  libbenchmark-dev:  include/benchmark/benchmark.h
  clang-format-14:   clang-format-14
'

present() {
  case $1 in
    include/*)
      local prefix
      for prefix in /usr /usr/local /opt/homebrew ${CMAKE_PREFIX_PATH:-}; do
        [ -e "$prefix/$1" ] && return 0
      done
      return 1
      ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

missing=()
while IFS=': ' read -r package probe; do
  if [ -n "$package" ] && ! present "$probe"; then missing+=("$package"); fi
done <<<"$(sed 's/^ *//' <<<"$requirements")"

if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    fail "install the equivalents of these Debian packages, then run this again: ${missing[*]}"
  fi
  if [ "$(id -u)" != 0 ]; then
    fail "some packages are missing; run:  sudo apt-get install ${missing[*]}"
  fi
  say "Installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

version=$(cmake --version | sed -n '1s/[^0-9]*//p')
if [ "$(printf '3.25\n%s\n' "$version" | sort -V | head -1)" != 3.25 ]; then
  fail "CMake $version is too old, 3.25 is needed; a newer one:  pip install 'cmake<4'"
fi
if [ "${1:-}" != --quiet ]; then
  echo "All dependencies are present."
  next "scripts/quickstart.sh trains a model; scripts/test.sh runs the tests"
fi
