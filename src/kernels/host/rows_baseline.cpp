// SPDX-License-Identifier: Apache-2.0
#define PENSTOCK_ISA baseline
#define PENSTOCK_PACK 4
#define PENSTOCK_TABLE baseline_rows
#include "kernels/host/rows.inc"
