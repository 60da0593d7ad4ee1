#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws loss, learning rate, gradient norm and tokens per second of one or several runs from their metrics.csv.

    scripts/plot_metrics.py runs/quickstart
    scripts/plot_metrics.py runs/a runs/b/metrics.csv --x tokens --output compared.png
"""
import argparse
import csv
import math
import pathlib
import sys

PANELS = [  # column, title, logarithmic where all values are positive
    ("loss", "loss [nats per token]", False),
    ("learning_rate", "learning rate", False),
    ("grad_norm", "gradient norm, before clipping", True),
    ("tokens_per_second", "tokens per second", False),
]


def metrics_file(run):
    """The metrics.csv that a run folder or a path to the file itself means."""
    path = pathlib.Path(run)
    if path.is_dir():
        path = path / "metrics.csv"
    if not path.is_file():
        sys.exit(f"error: {path}: no such file; give a run's folder or its metrics.csv")
    return path


def number(text):
    """A value of the file; an empty field (a step without validation) is not a number."""
    return float(text) if text else math.nan


def read_columns(path, needed):
    """Column name -> values. A last line that a killed run left half-written is passed over."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    if not rows:
        sys.exit(f"error: {path}: the file is empty")
    header, rows = rows[0], rows[1:]
    missing = [name for name in needed if name not in header]
    if missing:
        sys.exit(f"error: {path}: no column {', '.join(missing)}; it has {', '.join(header)}")
    if rows and len(rows[-1]) < len(header):
        rows.pop()
    if not rows:
        sys.exit(f"error: {path}: no steps yet")
    columns = {name: [] for name in header}
    for line, row in enumerate(rows, start=2):
        if len(row) != len(header):
            sys.exit(f"error: {path}:{line}: {len(row)} fields where the header has {len(header)}")
        for name, text in zip(header, row):
            try:
                columns[name].append(number(text))
            except ValueError:
                sys.exit(f"error: {path}:{line}: {name} is '{text}', which is no number")
    return columns


def draw(runs, x_name, output):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(12, 7.5), sharex=True, constrained_layout=True)
    for (column, title, logarithmic), axis in zip(PANELS, axes.flat):
        values = []
        for label, columns in runs:
            line, = axis.plot(columns[x_name], columns[column], linewidth=1.2, label=label)
            values += columns[column]
            if column == "loss":
                draw_validation(axis, columns, x_name, label, line.get_color())
        if logarithmic and all(value > 0 for value in values):
            axis.set_yscale("log")
        elif column == "tokens_per_second":
            axis.set_ylim(bottom=0)
        axis.set_title(title, fontsize=11)
        axis.grid(True, color="0.9")
    for axis in axes[1]:
        axis.set_xlabel(x_name)
    axes[0][0].legend(fontsize=9)
    figure.savefig(output, dpi=120)


def draw_validation(axis, columns, x_name, label, color):
    points = [(x, y) for x, y in zip(columns[x_name], columns.get("validation_loss", [])) if not math.isnan(y)]
    if points:
        axis.plot(*zip(*points), "o--", color=color, markersize=4, linewidth=0.8, label=f"{label}, validation")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="run folders, or metrics.csv files")
    parser.add_argument("--x", choices=["step", "tokens"], default="step", help="the horizontal axis (default: step)")
    parser.add_argument("--output", help="the PNG to write (default: metrics.png beside the run's metrics.csv; of several runs, "
                                         "in the working directory)")
    arguments = parser.parse_args()
    needed = ["step", "tokens"] + [column for column, _, _ in PANELS]
    paths = [metrics_file(run) for run in arguments.runs]
    runs = [(path.parent.name or str(path), read_columns(path, needed)) for path in paths]
    output = arguments.output or (paths[0].with_name("metrics.png") if len(paths) == 1 else "metrics.png")
    try:
        draw(runs, arguments.x, output)
    except ImportError as error:
        sys.exit(f"error: {error}; install python3-matplotlib")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {output}: {error}")
    print(output)


if __name__ == "__main__":
    main()
