#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""SPipe against what it is compared with.

    scripts/benchmark_spipe.py [--time-scale S] [--steps N] [--sequences 1024 2048] [--hardware FILE]
    scripts/benchmark_spipe.py --host [--steps N]

The first: against Mobius on the priced device, the 19B model of the SPipe paper on four V100 (doc/published_figures.md).
Every run is real messages and modelled waits over four ranks. Prints, for Mobius and for SPipe with 2/6, 3/9 and 4/12
stages a rank: the fastest step, what the simulator says, the speed-up over Mobius, and which share of the CPU
optimizer's time nothing hid.

With --host: on the host device, four ranks, a model that fits both ways: SPipe with parameters on the host against 1f1b
with parameters on the device and full recomputation, taken in turns; the median step of each.
"""
import argparse
import csv
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PENSTOCK = ROOT / "build" / "penstock"
MOBIUS = {"kind": "mobius", "virtual": 2}
SPIPES = [{"kind": "spipe", "forward_virtual": f, "backward_virtual": b} for f, b in ((2, 6), (3, 9), (4, 12))]


def deck(schedule, sequence, arguments, directory):
    """As the authors ran them: nothing clipped; Mobius steps when all gradients are known to be finite."""
    waits_for_all = schedule["kind"] == "mobius"
    return {
        "model": {"preset": "spipe_19b"},
        "training": {"steps": arguments.steps, "sequence": sequence, "global_batch": 16, "micro_batch": 2, "clip": 0,
                     "non_finite": "skip" if waits_for_all else "stop", "validate_every": 0},
        "parallel": {"pipeline": 4},
        "schedule": {**schedule, "early_recompute": True},
        "hardware": str(arguments.hardware),
        "memory": {"resident_stages": 2},
        "device": {"kind": "priced", "time_scale": arguments.time_scale},
        "output": {"directory": str(directory / "run"), "progress": False, "trace": True},
    }


def exposed_optimizer(trace):
    """Seconds of the quickest traced step between the end of the last computation and the end of the last action."""
    import h5py

    with h5py.File(trace) as file:
        spans = file["spans"][...]
        compute = h5py.check_enum_dtype(spans.dtype["lane"])["compute"]
    ends = []
    for step in set(spans["step"]):
        own = spans[spans["step"] == step]
        end = own["end"].max()
        ends.append((end - own["start"].min(), end - own[own["lane"] == compute]["end"].max()))
    return min(ends)[1]


def run(schedule, sequence, arguments):
    """Measured and simulated seconds of a step, and those of the optimizer that nothing hid; times not scaled."""
    with tempfile.TemporaryDirectory(prefix="penstock_") as folder:
        path = pathlib.Path(folder) / "deck.yaml"
        path.write_text(json.dumps(deck(schedule, sequence, arguments, pathlib.Path(folder))))
        simulated = json.loads(subprocess.run([PENSTOCK, "simulate", path, "--json"], check=True, capture_output=True,
                                              text=True).stdout)
        subprocess.run([ROOT / "scripts" / "mpirun.sh", "-n", "4", PENSTOCK, "train", path], check=True,
                       capture_output=True, text=True)
        summary = json.loads((pathlib.Path(folder) / "run" / "summary.json").read_text())
        exposed = exposed_optimizer(pathlib.Path(folder) / "run" / "trace.h5")
        scale = arguments.time_scale
        return summary["fastest_step_seconds"] / scale, simulated["step_seconds"], exposed / scale


HOST_SCHEDULES = {
    "spipe, parameters on the host": {"schedule": {"kind": "spipe", "forward_virtual": 2, "backward_virtual": 6}},
    "1f1b, parameters on the device": {"schedule": {"kind": "1f1b"}, "memory": {"recompute": "full"}},
}


def host_deck(changes, steps, directory):
    return {
        "model": {"family": "llama", "layers": 24, "hidden": 256, "heads": 8, "kv_heads": 4, "ffn": 704},
        "data": {"train": ["doc", "src"]},
        "training": {"steps": steps, "sequence": 256, "global_batch": 8, "micro_batch": 1},
        "parallel": {"pipeline": 4},
        "output": {"directory": str(directory), "progress": False, "checkpoint_every": 0},
        **changes,
    }


def host_steps(changes, steps):
    """Seconds of the steps of a run behind its first, which warms up."""
    with tempfile.TemporaryDirectory(prefix="penstock_") as folder:
        path = pathlib.Path(folder) / "deck.yaml"
        path.write_text(json.dumps(host_deck(changes, steps, pathlib.Path(folder) / "run")))
        subprocess.run([ROOT / "scripts" / "mpirun.sh", "-n", "4", PENSTOCK, "train", path], check=True, cwd=ROOT,
                       capture_output=True, text=True)
        with open(pathlib.Path(folder) / "run" / "metrics.csv", newline="") as file:
            return [float(row["step_seconds"]) for row in csv.DictReader(file)][1:]


def compare_on_host(steps):
    seconds = {name: [] for name in HOST_SCHEDULES}
    for _ in range(3):
        for name, changes in HOST_SCHEDULES.items():
            seconds[name] += host_steps(changes, steps)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, median in medians.items():
        print(f"{name}: {8 * 256 / median:.0f} tokens/s")
    spipe, plain = medians.values()
    print(f"ratio of tokens/s: {plain / spipe:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-scale", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1024, 2048])
    parser.add_argument("--hardware", type=pathlib.Path, default=ROOT / "input/hardware/v100_spipe.yaml")
    parser.add_argument("--host", action="store_true")
    arguments = parser.parse_args()
    if arguments.host:
        return compare_on_host(arguments.steps)
    print("| tokens | schedule | measured s | simulated s | difference | speed-up | optimizer exposed |")
    print("|---|---|---|---|---|---|---|")
    for sequence in arguments.sequences:
        mobius = None
        for schedule in [MOBIUS, *SPIPES]:
            measured, simulated, exposed = run(schedule, sequence, arguments)
            if mobius is None:
                mobius, optimizer = measured, exposed  # nothing of Mobius's optimizer is hidden
            name = schedule["kind"] + "".join(f" {v}" for k, v in schedule.items() if k != "kind")
            print(f"| {sequence} | {name} | {measured:.2f} | {simulated:.2f} | {measured / simulated - 1:+.1%} | "
                  f"{mobius / measured:.2f} | {exposed / optimizer:.0%} |", flush=True)


if __name__ == "__main__":
    main()
