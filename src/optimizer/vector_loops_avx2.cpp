// SPDX-License-Identifier: Apache-2.0
#define PENSTOCK_LOOPS avx2
#define PENSTOCK_LOOPS_NAME "avx2"
#include "optimizer/vector_loops.inc"
