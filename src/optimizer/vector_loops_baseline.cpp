// SPDX-License-Identifier: Apache-2.0
#define PENSTOCK_LOOPS baseline
#define PENSTOCK_LOOPS_NAME "baseline"
#include "optimizer/vector_loops.inc"
