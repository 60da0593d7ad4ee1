#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the AdamW trajectories of PyTorch that tests/optimizer/adamw.cpp compares with.

Usage: scripts/adamw_figures.py > tests/optimizer/adamw_figures.inc      (Debian: python3-torch)

Gradients are exact in fp32, so that any implementation can form them: element i at update t (from 1) has
((7 i + 13 t) mod 31 - 15) / 16, and element i starts at (5 i mod 11 - 5) / 8.
"""
import torch

ELEMENTS = 8
UPDATES = 50
CASES = [  # learning rate, beta1, beta2, epsilon, weight decay
    (3e-3, 0.9, 0.95, 1e-8, 0.1),
    (1e-2, 0.9, 0.999, 1e-8, 0.0),
    (1e-3, 0.8, 0.99, 1e-3, 0.5),
]


def trajectory(case, dtype):
    rate, beta1, beta2, epsilon, decay = case
    start = [(5 * i % 11 - 5) / 8 for i in range(ELEMENTS)]
    parameter = torch.nn.Parameter(torch.tensor(start, dtype=dtype))
    optimizer = torch.optim.AdamW([parameter], lr=rate, betas=(beta1, beta2), eps=epsilon, weight_decay=decay)
    for t in range(1, UPDATES + 1):
        parameter.grad = torch.tensor([((7 * i + 13 * t) % 31 - 15) / 16 for i in range(ELEMENTS)], dtype=dtype)
        optimizer.step()
    return parameter.detach().tolist()


def braces(values):
    return "{" + ", ".join(repr(value) for value in values) + "}"


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Written by scripts/adamw_figures.py with PyTorch {torch.__version__}: torch.optim.AdamW on the CPU, "
          f"{UPDATES} updates.")
    for case in CASES:
        rate, beta1, beta2, epsilon, decay = case
        print(f"{{.learning_rate = {rate},\n .betas = {{{beta1}, {beta2}}},\n .epsilon = {epsilon},\n"
              f" .weight_decay = {decay},")
        print(f" .in_fp64 = {braces(trajectory(case, torch.float64))},")
        print(f" .in_fp32 = {braces(trajectory(case, torch.float32))}}},")


if __name__ == "__main__":
    main()
