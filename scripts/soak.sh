#!/usr/bin/env bash
# Long runs that CI has no time for: fuzzing for hours, training under random delays and kills that must end with the bits of
# the undisturbed run, and random decks over all keys that touch each other.
# Usage: scripts/soak.sh [MINUTES]     (default 60; half for each part)
set -eu
cd "$(dirname "$0")/.."
minutes="${1:-60}"
scripts/build.sh
end=$((SECONDS + minutes * 30))
round=0
while [ "$SECONDS" -lt "$end" ]; do
  round=$((round + 1))
  echo "== soak round $round"
  PENSTOCK=build/penstock SOAK_SEED="$round" /usr/bin/python3 -B tests/application/soak.py
  PENSTOCK=build/penstock KILLS_SEED="$round" /usr/bin/python3 -B tests/application/kills.py
  PENSTOCK=build/penstock SOAK_SEED="$round" /usr/bin/python3 -B tests/application/combinations.py
done
targets=6
scripts/fuzz.sh $((minutes * 30 / targets))
