#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What cutting a sequence costs the compute lane of a real run.

    scripts/benchmark_slices.py [--slices 1 2 4 8] [--sequence 4096] [--layers 12] [--steps 3] [--rounds 2]

`penstock train` on one rank and one thread, a Llama of 12 x 768, bf16, one sequence a step in 1, 2, 4 and 8 slices: whole runs in
turns, round after round. Of each number of slices the best step behind the first of a run counts. Prints the processor seconds of the
lane's thread in a step, and the busy seconds that the trace gives it, which other programs of the machine lengthen.
(`build/benchmark_slices` measures the calls of a stage alone.)
"""
import argparse
import json
import pathlib
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PENSTOCK = ROOT / "build" / "penstock"
LOOK_EVERY = 0.005  # seconds


def deck(slices, arguments, directory):
    return {
        "model": {"family": "llama", "layers": arguments.layers, "hidden": 768, "heads": 12, "ffn": 2048, "precision": "bf16"},
        "data": {"train": ["doc", "src"]},
        "training": {"steps": arguments.steps, "sequence": arguments.sequence, "global_batch": 1, "micro_batch": 1,
                     "validate_every": 0},
        "schedule": {"kind": "seq1f1b", "slices": slices},
        "device": {"kind": "host", "threads": 1},
        "memory": {"device": "12 GiB"},
        "output": {"directory": str(directory), "progress": False, "checkpoint_every": 0, "trace": True,
                   "trace_steps": arguments.steps},
    }


def processor_seconds_of_lane(process):
    """Of the thread of the compute lane so far; None before it is there and behind its end."""
    for task in pathlib.Path(f"/proc/{process.pid}/task").glob("*"):
        try:
            if (task / "comm").read_text().strip() == "compute":
                return int((task / "schedstat").read_text().split()[0]) * 1e-9
        except OSError:  # the thread has ended meanwhile
            continue
    return None


def rows_in(path):
    return path.read_text().count("\n") - 1 if path.exists() else 0


def processor_seconds_of_steps(process, metrics):
    """Of the steps behind the first: what the lane took from one row of metrics.csv to the next."""
    at_rows = {}
    while process.poll() is None:
        rows = rows_in(metrics)
        if rows > 0 and rows not in at_rows:
            at_rows[rows] = processor_seconds_of_lane(process)
        time.sleep(LOOK_EVERY)
    known = [at_rows[rows] for rows in sorted(at_rows) if at_rows[rows] is not None]
    return [after - before for before, after in zip(known, known[1:])]


def busy_seconds_of_steps(trace):
    """Of the compute lane, by the trace, of the steps behind the first."""
    import h5py

    with h5py.File(trace) as file:
        spans = file["spans"][...]
        compute = h5py.check_enum_dtype(spans.dtype["lane"])["compute"]
    own = spans[spans["lane"] == compute]
    busy = own["end"] - own["start"] - own["waited"]
    return [busy[own["step"] == step].sum() for step in sorted(set(own["step"]))[1:]]


def run(slices, arguments):
    """Processor seconds and busy seconds of the lane in the steps of a run, but for the first, which warms up."""
    with tempfile.TemporaryDirectory(prefix="penstock_") as folder:
        directory = pathlib.Path(folder) / "run"
        path = pathlib.Path(folder) / "deck.yaml"
        path.write_text(json.dumps(deck(slices, arguments, directory)))
        process = subprocess.Popen([PENSTOCK, "train", path], cwd=ROOT, stdout=subprocess.DEVNULL)
        processor = processor_seconds_of_steps(process, directory / "metrics.csv")
        if process.returncode != 0 or not processor:
            raise SystemExit(f"error: the run in {slices} slices ended with code {process.returncode}")
        return processor, busy_seconds_of_steps(directory / "trace.h5")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=3, help="of a run; the first does not count")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    processor = {slices: [] for slices in arguments.slices}
    busy = {slices: [] for slices in arguments.slices}
    for _ in range(arguments.rounds):
        for slices in arguments.slices:
            of_run = run(slices, arguments)
            processor[slices] += of_run[0]
            busy[slices] += of_run[1]
    first = arguments.slices[0]
    print("| slices | processor s | | busy s | |\n|---|---|---|---|---|")
    for slices in arguments.slices:
        print(f"| {slices} | {min(processor[slices]):.2f} | {min(processor[slices]) / min(processor[first]):.3f} x | "
              f"{min(busy[slices]):.2f} | {min(busy[slices]) / min(busy[first]):.3f} x |")


if __name__ == "__main__":
    main()
