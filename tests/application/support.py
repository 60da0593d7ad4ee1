"""What the tests of the whole program share: running it on small decks, and reading what it leaves."""
import csv
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import h5py
import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
PENSTOCK = os.path.abspath(os.environ["PENSTOCK"])  # the program under test, set by CTest
os.chdir(ROOT)  # what decks name is relative to it, and CTest starts the tests elsewhere
TEXT = "The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs.\n" * 60

# Small enough that a run takes about a second, odd enough that nothing divides evenly.
SMALL = {
    "model": {"family": "llama", "layers": 5, "hidden": 24, "heads": 4, "kv_heads": 2, "ffn": 40, "precision": "fp32"},
    "training": {"steps": 3, "sequence": 20, "global_batch": 6, "micro_batch": 1, "seed": 7, "validate_every": 2,
                 "learning_rate": {"peak": 0.01, "warmup": 1}},
    "output": {"checkpoint_every": 0},
}


def long_under_sanitizers(test):
    """For a test that takes long in a build with a sanitizer, which sees its code in other tests: left out there."""
    return unittest.skipIf("PENSTOCK_SANITIZED" in os.environ, "long under sanitizers")(test)


def merged(base, changes):
    """A deck with `changes` (nested, or with dotted keys) over `base`."""
    result = json.loads(json.dumps(base))
    for key, value in changes.items():
        place = result
        *path, last = key.split(".")
        for part in path:
            place = place.setdefault(part, {})
        place[last] = merged(place.get(last, {}), value) if isinstance(value, dict) else value
    return result


class Run:
    """One finished `penstock train`: its exit code, its output and its files."""

    def __init__(self, completed, directory):
        self.code = completed.returncode
        self.output = completed.stdout
        self.directory = pathlib.Path(directory)

    def metrics(self):
        with open(self.directory / "metrics.csv", newline="") as file:
            return list(csv.DictReader(file))

    def losses(self):
        """The printed losses and norms of all steps, as text: they read back bitwise."""
        return [(row["loss"], row["grad_norm"], row["validation_loss"]) for row in self.metrics()]

    def summary(self):
        return json.loads((self.directory / "summary.json").read_text())

    def checkpoints(self):
        return sorted((self.directory / "checkpoints").glob("step_*.h5"))

    def weights(self):
        """All data sets of the newest checkpoint, as bytes."""
        found = {}
        with h5py.File(self.checkpoints()[-1]) as file:
            for group in ("parameters", "optimizer"):
                file[group].visititems(
                    lambda name, item, group=group: found.update({f"{group}/{name}": numpy.array(item).tobytes()})
                    if isinstance(item, h5py.Dataset) else None)
        return found


class ApplicationTest(unittest.TestCase):
    """A test with a folder of its own and a text to train on."""

    def setUp(self):
        self.folder_owner = tempfile.TemporaryDirectory(prefix="penstock_")
        self.addCleanup(self.folder_owner.cleanup)
        self.folder = pathlib.Path(self.folder_owner.name)
        (self.folder / "text.txt").write_text(TEXT)
        (self.folder / "held_out.txt").write_text(TEXT[:700])
        self.count = 0

    def deck(self, changes=None, name="deck.yaml"):
        """Writes a deck (JSON is YAML) and returns its path."""
        data = {"data": {"train": [str(self.folder / "text.txt")], "validation": [str(self.folder / "held_out.txt")]}}
        path = self.folder / name
        path.write_text(json.dumps(merged(merged(SMALL, data), changes or {}), indent=1))
        return path

    def train(self, ranks=1, changes=None, arguments=(), environment=None, directory=None, timeout=120):
        self.count += 1
        directory = directory or self.folder / f"run{self.count}"
        deck = self.deck(merged({"output": {"directory": str(directory)}}, changes or {}), f"deck{self.count}.yaml")
        completed = self.penstock(["train", str(deck), *arguments], ranks, environment, timeout)
        return Run(completed, directory)

    def penstock(self, arguments, ranks=0, environment=None, timeout=120):
        """Runs the program; with ranks > 0 under mpirun. Standard error is part of the output."""
        start = [str(ROOT / "scripts/mpirun.sh"), "-n", str(ranks)] if ranks else []
        return subprocess.run([*start, PENSTOCK, *arguments], text=True, timeout=timeout, errors="replace",
                              env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)

    def assert_finished(self, run):
        self.assertEqual(run.code, 0, run.output)

    def assert_same(self, run, expected, resumed=0):
        """A finished run with the losses, norms and weights of another, of whose steps it resumed behind some, to the bit."""
        self.assert_finished(run)
        self.assertEqual(run.losses(), expected.losses()[resumed:])
        weights, wanted = run.weights(), expected.weights()
        self.assertEqual(weights.keys(), wanted.keys())
        self.assertEqual([name for name in wanted if weights[name] != wanted[name]], [])

    def assert_planned(self, run):
        """The device memory that was measured is the planned one, to the byte."""
        for rank in run.summary()["ranks"]:
            self.assertEqual(rank["peak_device_bytes"], rank["planned_device_bytes"])

    def assert_same_in_all(self, layouts, changes, expected):
        """The deck `changes` gives what the run `expected` gave in every layout, each (ranks, changes), as planned."""
        for name, (ranks, layout) in layouts.items():
            with self.subTest(layout=name):
                run = self.train(ranks, merged(changes, layout))
                self.assert_same(run, expected)
                self.assert_planned(run)
