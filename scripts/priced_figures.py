#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs published schedules on the priced device, feature by feature, and compares them with the simulator.

Usage: scripts/priced_figures.py mepipe|slimpipe [--penstock build/penstock] [--steps 3] [--only ROW ...] [--set KEY=VALUE ...]

mepipe: SVPP of Llama 2 13B on eight ranks of RTX 4090; weight gradients whole, split, placed, and in a queue.
slimpipe: SlimPipe of Llama 13B at 128K tokens on eight ranks of eight H100; attention exchange, vocabulary sharding.

A step is the fastest of those behind the first. Idle is what the compute lanes of all ranks have left in it beside the work that the
model gives them; the cut is that of the first row less this one's, and the gain how much longer the first row's step is. Late: how much
longer the actions themselves took than their prices, the sleeps of the priced device ending late on a busy machine; it grows with their
number, and is the larger part of what a step is longer where weight gradients are single products.
"""
import argparse
import csv
import json
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANKS = 8


def placed(grain, queue="static"):
    return {"weight_gradients": "placed", "weight_grain": grain, "weight_queue": queue}


STUDIES = {
    "mepipe": {
        "deck": "input/simulate/svpp_13b_rtx4090.yaml",
        # Replicas side by side, so that the sums of gradients stay inside a node: what the planner prefers.
        "set": ["parallel.neighbours=replicas", "schedule.split_backward=false", "device.time_scale=4"],
        "rows": {
            "whole": {},
            "split": {"weight_gradients": "split"},
            "placed, whole": placed("whole"),
            "placed, products": placed("product"),
            "queue, whole": placed("whole", "dynamic"),
            "queue, products": placed("product", "dynamic"),
        },
    },
    "slimpipe": {
        "deck": "input/simulate/slimpipe_70b_h100.yaml",
        "set": ["model.preset=slimpipe_13b", "parallel.pipeline=8", "training.sequence=131072", "training.global_batch=4",
                "schedule.slices=16", "device.time_scale=4"],
        "rows": {
            "neither": {"exchange": "none", "vocabulary_parallel": "false"},
            "vocabulary": {"exchange": "none", "vocabulary_parallel": "true"},
            "pairwise exchange": {"exchange": "pairwise", "vocabulary_parallel": "false"},
            "global exchange": {"exchange": "global", "vocabulary_parallel": "false"},
            "pairwise, vocabulary": {"exchange": "pairwise", "vocabulary_parallel": "true"},
            "global, vocabulary": {"exchange": "global", "vocabulary_parallel": "true"},
        },
    },
}


def run(penstock, deck, settings, steps):
    """The summary of a run on the priced device; of its steps behind the first the fastest, and how long its lanes were busy."""
    with tempfile.TemporaryDirectory(prefix="penstock_") as folder:
        keys = [*settings, "device.kind=priced", f"training.steps={steps}", f"output.directory={folder}", "output.trace=false"]
        command = [str(ROOT / "scripts/mpirun.sh"), "-n", str(RANKS), penstock, "train", deck]
        for key in keys:
            command += ["--set", key]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        summary = json.loads((pathlib.Path(folder) / "summary.json").read_text())
        with (pathlib.Path(folder) / "metrics.csv").open() as file:
            rows = [(float(row["step_seconds"]), float(row["bubble_fraction"])) for row in csv.DictReader(file)]
    step, bubble = min(rows[1:])
    return summary, step, (1 - bubble) * RANKS * step


def idle(step, ranks):
    return sum(step - rank["simulated_compute_seconds"] for rank in ranks)


def difference(first, own):
    """How much more of the idle time was cut than simulated."""
    cut = first[1] - own[1]
    return f"{100 * ((first[2] - own[2]) / cut - 1):+.1f} %" if cut else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--penstock", default="build/penstock")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="ROW", help="these rows of the table, beside the first")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    options = parser.parse_args()
    study = STUDIES[options.study]
    print(f"{'':<22}{'simulated':>11}{'measured':>11}{'':>9}{'late':>9}{'gain':>9}{'idle sim.':>12}{'idle meas.':>12}{'cut sim.':>11}"
          f"{'cut meas.':>12}{'':>10}")
    first = None
    for name, keys in study["rows"].items():
        if first and options.only and name not in options.only:
            continue
        settings = study["set"] + [f"schedule.{key}={value}" for key, value in keys.items()] + options.settings
        summary, measured, busy = run(options.penstock, study["deck"], settings, options.steps)
        simulated = summary["simulated_step_seconds"]
        ranks = summary["ranks"]
        late = busy / sum(rank["simulated_compute_seconds"] for rank in ranks) - 1
        own = (measured, idle(simulated, ranks), idle(measured, ranks))
        first = first or own
        print(f"{name:<22}{simulated:>9.3f} s{measured:>9.3f} s{100 * (measured / simulated - 1):>+7.2f} %"
              f"{100 * late:>+7.2f} %{100 * (first[0] / measured - 1):>+7.2f} %{own[1]:>10.3f} s{own[2]:>10.3f} s"
              f"{first[1] - own[1]:>9.3f} s{first[2] - own[2]:>10.3f} s{difference(first, own):>10}", flush=True)
        for rank in ranks:
            if rank["peak_device_bytes"] != rank["planned_device_bytes"]:
                raise SystemExit(f"{name}: measured bytes differ from the plan")


if __name__ == "__main__":
    main()
