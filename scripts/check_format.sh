#!/usr/bin/env bash
# Fails where clang-format would change a source file; `--fix` changes them.
# Needs clang-format 14, Debian 12's: other versions format a few constructs differently.
set -euo pipefail
cd "$(dirname "$0")/.."

formatter=
for candidate in clang-format-14 clang-format; do
  if command -v "$candidate" >/dev/null && "$candidate" --version | grep -q 'version 14\.'; then
    formatter=$candidate
    break
  fi
done
if [ -z "$formatter" ]; then
  echo "clang-format 14 is needed: apt-get install clang-format-14, or pip install clang-format==14.0.6" >&2
  exit 1
fi

files() {
  find include src kernels simgpu tests examples benchmarks -type f \
    \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0
}
# The result is compared, rather than --dry-run asked: that reports nested inline namespaces whose
# text it would not change. Of copies, many at once: a process or two a file cost more than the formatting.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for copy in written formatted; do
  mkdir "$scratch/$copy"
  files | xargs -0 cp --parents -t "$scratch/$copy" .clang-format
done
(cd "$scratch/formatted" && files | xargs -0 -n 50 -P 2 "$formatter" -i)
if [ "${1:-}" = --fix ]; then
  # What is as wanted stays untouched, or builds would compile all that includes it.
  { (cd "$scratch" && diff -rq written formatted) || true; } |
    sed -n 's|^Files written/\(.*\) and formatted/.* differ$|\1|p' |
    while IFS= read -r file; do cp "$scratch/formatted/$file" "$file"; done
  exit
fi
(cd "$scratch" && diff -ru written formatted) ||
  { echo "format: the lines above differ; scripts/check_format.sh --fix changes them" >&2; exit 1; }
echo "format: $(files | tr -cd '\0' | wc -c) files are as .clang-format wants them"
