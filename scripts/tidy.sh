#!/usr/bin/env bash
# clang-tidy over all sources, tests and benchmarks, a unit per target: most of its time goes into what they include.
# Usage: scripts/tidy.sh [PATTERN]     (a regular expression for the units' paths; without it all)
set -eu
cd "$(dirname "$0")/.."
cmake --preset tidy >/dev/null
units="$(sed -n 's/^ *"file": "\(.*\)".*/\1/p' build/tidy/compile_commands.json | grep -E -- "${1:-.}")" ||
  { echo "error: no unit's path has the pattern ${1:-.}" >&2; exit 2; }
# A unit includes the sources, which that one check would find suspicious.
xargs -P "$(nproc)" -n 1 clang-tidy -p build/tidy --quiet --checks=-bugprone-suspicious-include \
  --extra-arg=-Wno-unknown-warning-option 2>/dev/null <<<"$units"
