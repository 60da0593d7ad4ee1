// SPDX-License-Identifier: Apache-2.0
#define PENSTOCK_ISA avx2
#define PENSTOCK_PACK 8
#define PENSTOCK_TABLE avx2_rows
#include "kernels/host/rows.inc"
