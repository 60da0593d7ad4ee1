#!/usr/bin/env bash
# clang-tidy in two passes. Most of its checks take all sources, tests and benchmarks, a unit per target, since most of their
# time goes into what the sources include. The analyzer follows paths only through the file that it is given: it takes the
# sources one by one.
# Usage: scripts/tidy.sh [PATTERN]     (a regular expression for the paths of units and sources; without it all)
set -eu
cd "$(dirname "$0")/.."
cmake --preset tidy >/dev/null
cmake --preset dev >/dev/null
units="$(sed -n 's/^ *"file": "\(.*\)".*/\1/p' build/tidy/compile_commands.json | grep -E -- "${1:-.}")" ||
  { echo "error: no unit's path has the pattern ${1:-.}" >&2; exit 2; }
sources="$(git ls-files 'src/*.cpp' | grep -E -- "${1:-.}" || true)"

# A unit includes the sources, which one check would find suspicious.
xargs -P "$(nproc)" -n 1 clang-tidy -p build/tidy --quiet --checks='-clang-analyzer-*,-bugprone-suspicious-include' \
  --extra-arg=-Wno-unknown-warning-option 2>/dev/null <<<"$units"
xargs -r -P "$(nproc)" -n 4 clang-tidy -p build/dev --quiet \
  --checks='-*,clang-analyzer-*,-clang-analyzer-optin.mpi.MPI-Checker' \
  --extra-arg=-Wno-unknown-warning-option 2>/dev/null <<<"$sources"
