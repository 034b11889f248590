#!/usr/bin/env bash
# Puts the headers of cudnn-frontend where CMake looks for them: ${1:-~/.cache/lockstep}.
# They come from the wheel on PyPI (MIT and Apache-2.0); nothing is installed into Python.
set -euo pipefail

version=1.32.0
target="${1:-$HOME/.cache/lockstep}/cudnn-frontend"

if [ -f "$target/include/cudnn_frontend.h" ] && [ "$(cat "$target/version" 2>/dev/null)" = "$version" ]; then
  echo "cudnn-frontend $version is in $target/include"
  exit 0
fi
if ! command -v python3 >/dev/null || ! python3 -m pip --version >/dev/null 2>&1; then
  echo "get_cudnn_frontend.sh: needs pip: apt-get install python3-pip" >&2
  exit 1
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m pip download --quiet --no-deps --dest "$scratch" "nvidia-cudnn-frontend==$version"
python3 - "$scratch" "$target" <<'PY'
import pathlib, sys, zipfile
scratch, target = map(pathlib.Path, sys.argv[1:])
wheel = next(scratch.glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        if name.startswith("include/") and not name.endswith("/"):
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(archive.read(name))
PY
echo "$version" >"$target/version"
echo "cudnn-frontend $version is in $target/include; configure with LOCKSTEP_CUDA=ON to use it"
