#!/usr/bin/env bash
# Runs every fuzz target for a bounded time on its corpus; a crash leaves its input in build/fuzz/findings.
# Usage: scripts/fuzz.sh [SECONDS PER TARGET]     (default 20)
set -eu
cd "$(dirname "$0")/.."
seconds="${1:-20}"
. scripts/environment.sh
cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target fuzzers
mkdir -p build/fuzz/findings
for target in build/fuzz/fuzz_*; do
  name="$(basename "$target")"
  work="build/fuzz/corpus/$name"
  mkdir -p "$work"
  seeds="$(find tests -type d -name "corpus_${name#fuzz_}")"
  echo "== $name, $seconds s"
  # shellcheck disable=SC2086  # one folder or none
  "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix=build/fuzz/findings/"$name"- "$work" $seeds 2>&1 | grep -E 'ERROR|SUMMARY|stat::number_of_executed_units|DONE' || true
  [ -z "$(find build/fuzz/findings -name "$name-*" -print -quit)" ] || { echo "error: $name found a failing input" >&2; exit 1; }
done
