#!/usr/bin/env bash
# mpirun with what many ranks on few cores need: more ranks than cores, no binding, waits that yield, root allowed.
# Usage: scripts/mpirun.sh -n 4 PROGRAM ARGUMENTS...
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca btl_vader_single_copy_mechanism none "$@"
