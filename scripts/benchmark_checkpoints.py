#!/usr/bin/python3
"""Times the steps of GPT-2 124M during which a checkpoint is written in the background, against those of the same run without one.

Needs build/penstock. A step counts as one with a checkpoint when it begins before the write has ended, by the seconds that the
program gives each write. The first step, which touches memory for the first time, counts for neither.

Usage: scripts/benchmark_checkpoints.py [--every STEPS] [--checkpoints N]
"""
import argparse
import csv
import pathlib
import re
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def train(every, checkpoints, folder):
    """Seconds of the steps, and seconds of the writes in order."""
    steps = every * (checkpoints + 1)
    changes = [f"training.steps={steps}", f"output.checkpoint_every={every}", f"output.directory={folder}"]
    command = [ROOT / "build/penstock", "train", "input/gpt2_124m.yaml"]
    for change in changes:
        command += ["--set", change]
    run = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with open(pathlib.Path(folder) / "metrics.csv", encoding="utf-8") as file:
        seconds = [float(row["step_seconds"]) for row in csv.DictReader(file)]
    return seconds, [float(text) for text in re.findall(r"^checkpoint .* in ([0-9.]+) s$", run.stdout, re.MULTILINE)]


def with_and_without(seconds, writes, every):
    """The steps after each checkpoint but the last, in those that begin while it is written and the others."""
    during, others = [], list(seconds[1:every])
    for index, write in enumerate(writes[:-1]):
        since = 0.0
        for step in seconds[every * (index + 1):every * (index + 2)]:
            (during if since < write else others).append(step)
            since += step
    return during, others


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=8, help="steps from one checkpoint to the next (default 8)")
    parser.add_argument("--checkpoints", type=int, default=4, help="checkpoints that steps follow (default 4)")
    options = parser.parse_args()
    if options.every < 3 or options.checkpoints < 1:
        parser.error("--every must be at least 3 and --checkpoints at least 1")
    with tempfile.TemporaryDirectory() as folder:
        seconds, writes = train(options.every, options.checkpoints, pathlib.Path(folder) / "run")
    during, others = with_and_without(seconds, writes, options.every)
    usual = statistics.median(others)
    print(f"{len(others)} steps without a checkpoint: median {usual:.3f} s, worst {max(others) / usual:.2f} x")
    print(f"{len(during)} steps while one is written: mean {statistics.mean(during) / usual:.2f} x, "
          f"median {statistics.median(during) / usual:.2f} x, worst {max(during) / usual:.2f} x")
    print("writes: " + ", ".join(f"{write:.1f}" for write in writes) + " s (nothing hides the last)")


if __name__ == "__main__":
    main()
