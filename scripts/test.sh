#!/usr/bin/env bash
# Builds everything and runs every test.
# Usage: scripts/test.sh [CTEST ARGUMENT...]     e.g. scripts/test.sh -L unit, scripts/test.sh -R schedule
set -eu
cd "$(dirname "$0")/.."
. scripts/environment.sh
scripts/build.sh all
exec ctest --test-dir build --output-on-failure --no-tests=error "$@"
