#!/usr/bin/env bash
# Builds build/penstock (Release). Run again, it builds only what changed.
# Usage: scripts/build.sh [TARGET...]     (default: penstock)
set -eu
cd "$(dirname "$0")/.."
scripts/install_packages.sh
. scripts/environment.sh
cmake --preset release >/dev/null
cmake --build build --target "${@:-penstock}"
