#!/usr/bin/env bash
# Installs the packages, builds Penstock, and trains a small Llama model on 4 pipeline ranks of this machine's processor: on
# the text of this repository and the licence texts of the system. Ends with a summary and a sample of the model's text.
# Usage: scripts/quickstart.sh [ARGUMENT OF penstock train...]     e.g. scripts/quickstart.sh --set training.steps=50
set -eu
cd "$(dirname "$0")/.."
scripts/build.sh
exec scripts/mpirun.sh -n 4 build/penstock train input/quickstart.yaml "$@"
