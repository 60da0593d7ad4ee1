#!/usr/bin/python3
"""Times whole GPT-2 124M training steps (forward, backward, clipping, AdamW): Penstock against PyTorch, alternating in one run.

Needs python3-torch beside Penstock's own packages. Prints tokens per second of both, their ratio, and Penstock's model FLOPs
against oneDNN's rate on 1024 x 768 x 768 in the same run (build/benchmark_host_kernels).

PyTorch's fp32 steps take several times as long as its bf16 ones: --torch-seconds bounds its half of a round (at least one step is timed),
and --skip-torch leaves it out.

Usage: scripts/benchmark_gpt2.py [--precision bf16|fp32] [--rounds N] [--steps N] [--torch-seconds N | --skip-torch]
"""
import argparse
import csv
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS, HIDDEN, HEADS, VOCABULARY, POSITIONS = 12, 768, 12, 50257, 1024
SEQUENCES, TOKENS, THREADS = 4, 256, 2
# 6 per matrix parameter and token (the head included) and 6 per layer, channel and key of a causal attention.
MATRICES = LAYERS * 12 * HIDDEN * HIDDEN + VOCABULARY * HIDDEN
FLOPS_PER_TOKEN = 6 * MATRICES + 6 * LAYERS * HIDDEN * TOKENS


def torch_seconds(precision, steps, limit):
    """Median seconds of a training step in PyTorch, in a process of its own: of `steps`, or as many as begin within `limit` seconds."""
    output = subprocess.run([sys.executable, __file__, "--torch-worker", precision, "--steps", str(steps), "--torch-seconds",
                             str(limit)], check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(output.strip().splitlines()[-1])


def torch_worker(precision, steps, limit):
    import torch
    from torch import nn
    from torch.nn import functional

    torch.set_num_threads(THREADS)
    torch.manual_seed(1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
            self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
            self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)
            self.register_buffer("mask", torch.full((TOKENS, TOKENS), float("-inf")).triu(1))

        def forward(self, x):
            batch, tokens, _ = x.shape
            q, k, v = (part.view(batch, tokens, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(HIDDEN, 2))
            scores = q @ k.transpose(2, 3) * (HIDDEN // HEADS) ** -0.5 + self.mask.to(q.dtype)
            x = x + self.out((functional.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, tokens, HIDDEN))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(POSITIONS, HIDDEN)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(HIDDEN)

        def forward(self, ids, targets):
            x = self.tokens(ids) + self.positions(torch.arange(TOKENS))
            for block in self.blocks:
                x = block(x)
            logits = functional.linear(self.norm(x), self.tokens.weight)
            return functional.cross_entropy(logits.view(-1, VOCABULARY).float(), targets.reshape(-1))

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
    times = []
    for _ in range(steps + 1):
        ids = torch.randint(256, (SEQUENCES, TOKENS + 1))
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - begin)
        if len(times) > 1 and sum(times) > limit:
            break
    print(statistics.median(times[1:]))


def penstock_seconds(precision, steps):
    """Median seconds of a training step of input/gpt2_124m.yaml."""
    with tempfile.TemporaryDirectory() as folder:
        sets = [f"model.precision={precision}", f"training.steps={steps + 1}", f"output.directory={folder}",
                "training.validate_every=0", "output.checkpoint_every=0", f"device.threads={THREADS}"]
        command = [str(ROOT / "scripts/mpirun.sh"), "-n", "1", str(ROOT / "build/penstock"), "train", "input/gpt2_124m.yaml"]
        for value in sets:
            command += ["--set", value]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        with open(pathlib.Path(folder) / "metrics.csv", newline="") as file:
            times = [float(row["step_seconds"]) for row in csv.DictReader(file)]
    return statistics.median(times[1:])


def onednn_flops(precision):
    """oneDNN's own rate on 1024 x 768 x 768 with THREADS threads, in FLOP/s."""
    size = {"bf16": 2, "fp32": 4}[precision]
    output = subprocess.run([str(ROOT / "build/benchmark_host_kernels"), "--benchmark_format=json", "--benchmark_min_time=0.5",
                             f"--benchmark_filter=linear/forward_1024x768x768/threads:{THREADS}/bytes:{size}/real_time"],
                            check=True, stdout=subprocess.PIPE, text=True).stdout
    row = json.loads(output)["benchmarks"][0]
    return row["onednn"] * 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--torch-seconds", type=float, default=60)
    parser.add_argument("--skip-torch", action="store_true")
    parser.add_argument("--torch-worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch_worker:
        torch_worker(options.torch_worker, options.steps, options.torch_seconds)
        return
    tokens = SEQUENCES * TOKENS
    for _ in range(options.rounds):
        rate = onednn_flops(options.precision)
        mine = tokens / penstock_seconds(options.precision, options.steps)
        beside = "PyTorch left out"
        if not options.skip_torch:
            theirs = tokens / torch_seconds(options.precision, options.steps, options.torch_seconds)
            beside = f"PyTorch {theirs:.0f} tokens/s, ratio {mine / theirs:.2f}"
        print(f"{options.precision}: Penstock {mine:.0f} tokens/s, {beside}; "
              f"model FLOPs {mine * FLOPS_PER_TOKEN / 1e9:.0f} GFLOP/s, oneDNN {rate / 1e9:.0f} GFLOP/s, "
              f"share {mine * FLOPS_PER_TOKEN / rate:.2f}", flush=True)


if __name__ == "__main__":
    main()
