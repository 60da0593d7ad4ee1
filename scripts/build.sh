#!/usr/bin/env bash
# Builds build/penstock (Release). Run again, it builds only what changed.
# Usage: scripts/build.sh [TARGET...]     (default: penstock)
set -eu
cd "$(dirname "$0")/.."
scripts/install_packages.sh
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
cmake --preset release >/dev/null
cmake --build build --target "${@:-penstock}"
