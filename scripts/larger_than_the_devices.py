#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of doc/larger_than_the_devices.md: what each feature saves and costs, and what goes with what.

The figures are those of `penstock simulate`; whether a kind of schedule takes a feature is what `penstock check` says of a
small deck with both. So the tables say what this program does; a test compares them with the page.

    PENSTOCK=build/penstock scripts/larger_than_the_devices.py           # prints them
    PENSTOCK=build/penstock scripts/larger_than_the_devices.py --write   # puts them into the page
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "doc" / "larger_than_the_devices.md"
LONG = "input/larger/long_13b_h100.yaml"
LARGE = "input/larger/large_19b_rtx3090.yaml"
SLICED = "schedule.kind=slimpipe schedule.slices=16 schedule.virtual=5"
SHARED = SLICED + " schedule.exchange=global schedule.vocabulary_parallel=true"

# What --set says beside the deck, a row each.
FIGURES = {
    LONG: [
        "",
        "memory.recompute=attention",
        "memory.recompute=selective",
        "memory.recompute=layers",
        "memory.recompute=full",
        "memory.offload_activations=0.5",
        "memory.offload_activations=1",
        "memory.recompute=layers memory.offload_activations=1",
        "schedule.kind=svpp schedule.slices=16",
        "schedule.kind=slimpipe schedule.slices=16",
        SLICED,
        SLICED + " schedule.exchange=global",
        SHARED,
        SHARED + " memory.recompute=attention",
        SHARED + " memory.recompute=selective",
        SHARED + " memory.offload_activations=0.5",
        "schedule.kind=spipe schedule.slices=16 schedule.backward_virtual=3",
    ],
    LARGE: [
        "",
        "memory.parameters=host",
        "schedule.kind=interleaved schedule.virtual=6 memory.parameters=host",
        "schedule.kind=breadth_first schedule.virtual=6 memory.parameters=host",
        "schedule.kind=mobius schedule.virtual=2",
        "schedule.kind=mobius schedule.virtual=6",
        "schedule.kind=spipe schedule.forward_virtual=2 schedule.backward_virtual=6",
        "schedule.kind=spipe schedule.forward_virtual=2 schedule.backward_virtual=6 memory.resident_stages=1",
    ],
}

# Two ranks, eight layers: every kind has stages enough, and slices go round.
DECK = {
    "model": {"family": "llama", "layers": 8, "hidden": 16, "heads": 4, "kv_heads": 2, "ffn": 32},
    "training": {"steps": 1, "sequence": 16, "global_batch": 8},
    "parallel": {"pipeline": 2},
}

# Header of the column, and the keys that ask for it.
FEATURES = {
    "`virtual` above 1": ["schedule.virtual=2"],
    "slices": ["schedule.slices=4"],
    "parameters `host`": ["memory.parameters=host"],
    "recompute `attention`, `selective`, `layers`": ["memory.recompute=layers"],
    "recompute `full`": ["memory.recompute=full"],
    "offload": ["memory.offload_activations=0.5"],
    "weight gradients placed": ["schedule.weight_gradients=placed"],
    "products queued": ["schedule.weight_gradients=placed", "schedule.weight_grain=product", "schedule.weight_queue=dynamic"],
    "exchange": ["schedule.exchange=global"],
    "vocabulary": ["schedule.vocabulary_parallel=true"],
    "speculative": ["training.clip_mode=speculative"],
    "data": ["parallel.data=2"],
}

# What a kind always has, if it refuses this in place of it.
OPPOSITE = {
    "parameters `host`": ["memory.parameters=device"],
    "recompute `full`": ["memory.recompute=none"],
    "`virtual` above 1": ["schedule.virtual=1"],
    "slices": ["schedule.slices=1"],
}

NO = "–"

# The kind that takes every feature: the features' table is about it.
ALL_FEATURES = "slimpipe"


class Checks:
    """Asks `penstock check`, once for each set of keys."""

    def __init__(self, penstock, folder):
        self.penstock = penstock
        self.deck = pathlib.Path(folder) / "deck.yaml"
        text = pathlib.Path(folder) / "text.txt"
        text.write_text("a text to train on\n" * 20)
        self.deck.write_text(json.dumps({**DECK, "data": {"train": [str(text)]}}))
        self.known = {}

    def takes(self, keys):
        name = tuple(keys)
        if name not in self.known:
            overrides = [part for key in keys for part in ("--set", key)]
            run = subprocess.run([self.penstock, "check", str(self.deck), *overrides], capture_output=True, text=True)
            if run.returncode not in (0, 2):
                raise RuntimeError(f"{' '.join(keys)}: exit code {run.returncode}\n{run.stdout}{run.stderr}")
            self.known[name] = run.returncode == 0
        return self.known[name]


def kinds(penstock):
    """The kinds of schedules, as the help of a deck names them."""
    page = subprocess.run([penstock, "help", "deck", "--markdown"], capture_output=True, text=True, check=True).stdout
    section = page[page.index("## schedule"):]
    row = next(line for line in section.splitlines() if line.startswith("| `kind` |"))
    return row.replace("\\|", " ").split("|")[2].split()


def least_keys(checks, kind):
    """A kind with what it cannot do without: two stages a rank, or slices."""
    for more in ([], ["schedule.virtual=2"], ["schedule.slices=2"]):
        if checks.takes([f"schedule.kind={kind}", *more]):
            return [f"schedule.kind={kind}", *more]
    raise RuntimeError(f"check takes no deck of the kind {kind}")


def cell(checks, base, feature):
    """yes, always, or a dash."""
    keys = [key for key in base if key.split("=")[0] not in {new.split("=")[0] for new in FEATURES[feature]}]
    if not checks.takes(keys + FEATURES[feature]):
        return NO
    opposite = OPPOSITE.get(feature)
    return "always" if opposite and not checks.takes(keys + opposite) else "yes"


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def kinds_table(checks, penstock):
    rows = []
    for kind in kinds(penstock):
        base = least_keys(checks, kind)
        rows.append([f"`{kind}`", *(cell(checks, base, feature) for feature in FEATURES)])
    return table(["`schedule.kind`", *FEATURES], rows)


def pairs_table(checks):
    """Which features stand beside each other; each pair once."""
    base = [f"schedule.kind={ALL_FEATURES}", "schedule.slices=4"]
    features = [feature for feature in FEATURES if feature not in ("`virtual` above 1", "slices")]
    rows = []
    for at, first in enumerate(features[1:], 1):
        cells = []
        for second in features[:-1]:
            if features.index(second) >= at or {key.split("=")[0] for key in FEATURES[first]} & {
                    key.split("=")[0] for key in FEATURES[second]}:
                cells.append("")
            else:
                cells.append("yes" if checks.takes([*base, *FEATURES[first], *FEATURES[second]]) else NO)
        rows.append([first, *cells])
    return table(["", *features[:-1]], rows)


def figures(penstock, deck):
    """Step and memory of a deck as it is, and with each row's keys; above the first column stands what the rows are about."""
    rows = []
    for row in FIGURES[deck]:
        overrides = [part for key in row.split() for part in ("--set", key)]
        run = subprocess.run([penstock, "simulate", deck, "--json", *overrides], cwd=ROOT, capture_output=True, text=True)
        if run.returncode not in (0, 3):
            raise RuntimeError(f"{deck} {row}: exit code {run.returncode}\n{run.stderr}")
        step = json.loads(run.stdout)
        gib = 2**30
        rows.append([", ".join(f"`{key}`" for key in row.split()) or "as it is",
                     f"{step['step_seconds']:.1f}",
                     f"{max(rank['peak_device_bytes'] for rank in step['ranks']) / gib:.1f}",
                     "yes" if step["fits"] else NO,
                     f"{sum(rank['peak_host_bytes'] for rank in step['ranks']) / gib:.0f}"])
    return table(["`--set`", "step [s]", "fullest device [GiB]", "fits", "host, all ranks [GiB]"], rows)


def sections(penstock):
    """The generated parts of the page by their names."""
    with tempfile.TemporaryDirectory(prefix="penstock_") as folder:
        checks = Checks(penstock, folder)
        return {"long": figures(penstock, LONG), "large": figures(penstock, LARGE),
                "kinds": kinds_table(checks, penstock), "pairs": pairs_table(checks)}


def filled(page, parts):
    """The page with each part between the comments that bear its name."""
    for name, part in parts.items():
        before, rest = page.split(f"<!-- {name}: generated -->\n")
        page = f"{before}<!-- {name}: generated -->\n{part}<!-- {name}: end -->\n" + rest.split(f"<!-- {name}: end -->\n")[1]
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"put them into {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    parts = sections(os.environ.get("PENSTOCK", str(ROOT / "build/penstock")))
    if arguments.write:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")
    else:
        print("\n".join(parts.values()), end="")


if __name__ == "__main__":
    main()
