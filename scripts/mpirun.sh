#!/usr/bin/env bash
# mpirun with what many ranks on few cores need: more ranks than cores, no binding, root allowed. (What the library itself
# needs the program sets: src/comm/environment.cpp.) Exit code: that of the first rank that failed.
# Usage: scripts/mpirun.sh -n 4 PROGRAM ARGUMENTS...
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec mpirun --oversubscribe --bind-to none "$@"
