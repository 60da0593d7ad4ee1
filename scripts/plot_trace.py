#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a step of a trace: what each rank's lanes did when, and its device memory in use. The pale end of an action is as long
as all that it waited for other ranks, whenever that was.

    scripts/plot_trace.py runs/quickstart
    scripts/plot_trace.py trace.h5 --step 7 --output step7.png
"""
import argparse
import math
import pathlib
import sys

COLORS = {
    "F": "#4e7ebe", "B": "#3e9152", "I": "#48a59b", "W": "#de9628", "R": "#9668aa",
    "EF": "#6096c4", "VF": "#6096c4", "VB": "#68b078", "EB": "#68b078",
    "SEND_F": "#8cb2de", "RECV_F": "#b2ceeb", "SEND_B": "#8cc896", "RECV_B": "#b4deba",
    "SEND_C": "#c8b4d2", "RECV_C": "#dccfe3", "OFFLOAD_A": "#c9d27a", "RELOAD_A": "#9fae3c",
    "FETCH_F": "#e2a0c4", "FETCH_B": "#c46a9b", "OFFLOAD_G": "#f0c482", "REDUCE": "#ce786e", "VALIDATE": "#787878", "STEP": "#be423e",
    "UNDO": "#e87046", "EVICT_F": "#c8c8c8", "EVICT_B": "#c8c8c8",
}
HEIGHTS = {"compute": 1.0}
OTHER_HEIGHT = 0.4
GAP = 0.4
WAITING = {"facecolors": "#ffffffb3", "linewidths": 0}
MOST_LEGEND_COLUMNS = 12


def read(path):
    """The tables, the names behind their enumerations, and the schedule's name."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            spans, memory = file["spans"], file["memory"]
            names = {column: {value: name for name, value in h5py.check_enum_dtype(spans.dtype[column]).items()}
                     for column in ("lane", "op")}
            schedule = file.attrs["schedule"]
            schedule = schedule.decode() if isinstance(schedule, bytes) else str(schedule)
            return spans[...], memory[...], names, schedule, int(file.attrs["ranks"])
    except (OSError, KeyError, AttributeError) as error:
        sys.exit(f"error: {path}: {error}; expected a trace.h5 of a run")


def select(rows, step, path):
    """The rows of one step; the last one that the trace holds if `step` is None."""
    import numpy

    steps = numpy.unique(rows["step"])
    if len(steps) == 0:
        sys.exit(f"error: {path}: the trace holds no spans")
    if step is None:
        step = int(steps[-1])
    if step not in steps:
        sys.exit(f"error: {path}: no step {step}; the trace holds {int(steps[0])} to {int(steps[-1])}")
    return rows[rows["step"] == step], step


def lay_out(spans, names):
    """(rank, lane) -> (y, height) from the top down, for lanes that have spans."""
    import numpy

    rows, y, rank_before = {}, 0.0, None
    for rank, lane in numpy.unique(spans[["rank", "lane"]]):
        if rank_before is not None and rank != rank_before:
            y += GAP
        rank_before = rank
        height = HEIGHTS.get(names["lane"][lane], OTHER_HEIGHT)
        rows[int(rank), int(lane)] = (y, height)
        y += height
    return rows, y


def waited(spans):
    """Seconds of each that it waited for other ranks; older traces do not say."""
    return spans["waited"] if "waited" in spans.dtype.names else 0 * spans["end"]


def bubble(spans, names, ranks):
    """1 - busy / (ranks x makespan) of the compute lanes; what their actions waited is not busy."""
    compute = spans[[names["lane"][lane] == "compute" for lane in spans["lane"]]]
    if len(compute) == 0:
        return 0.0
    makespan = compute["end"].max() - compute["start"].min()
    busy = (compute["end"] - compute["start"] - waited(compute)).sum()
    return 1 - busy / (ranks * makespan) if makespan > 0 else 0.0


def draw_spans(axis, spans, rows, names, start, scale):
    """Returns how many rows the legend above the axis has."""
    import matplotlib.patches

    width = (spans["end"].max() - start) * scale
    for (rank, lane), (y, height) in rows.items():
        own = spans[(spans["rank"] == rank) & (spans["lane"] == lane)]
        axis.broken_barh([(0, width)], (y + 0.04, height - 0.08), facecolors="#f3f3f3")
        axis.broken_barh([((s["start"] - start) * scale, (s["end"] - s["start"]) * scale) for s in own],
                         (y + 0.04, height - 0.08), edgecolors="white", linewidths=0.3,
                         facecolors=[COLORS.get(names["op"][s["op"]], "#000000") for s in own])
        if names["lane"][lane] != "compute":
            continue
        axis.broken_barh([((s["end"] - w - start) * scale, w * scale) for s, w in zip(own, waited(own))],
                         (y + 0.04, height - 0.08), **WAITING)
        long_enough = own[(own["end"] - own["start"]) * scale > 0.014 * width]
        for s in long_enough:
            axis.text(((s["start"] + s["end"]) / 2 - start) * scale, y + height / 2, str(s["micro_batch"]),
                      ha="center", va="center", fontsize=7, color="black")
    axis.set_yticks([y + height / 2 for y, height in rows.values()])
    axis.set_yticklabels([f"rank {rank}" if names["lane"][lane] == "compute" else names["lane"][lane] for rank, lane in rows],
                         fontsize=8)
    for label in axis.get_yticklabels():
        if not label.get_text().startswith("rank"):
            label.set_fontsize(5.5)
    used = [names["op"][op] for op in sorted(set(spans["op"].tolist()))]
    handles = [matplotlib.patches.Patch(color=COLORS.get(op, "#000000"), label=op) for op in used]
    if (waited(spans) > 0).any():
        handles.append(matplotlib.patches.Patch(facecolor="white", edgecolor="#bbbbbb", label="waited"))
    legend_rows = math.ceil(len(handles) / MOST_LEGEND_COLUMNS)
    axis.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=math.ceil(len(handles) / legend_rows),
                fontsize=8, frameon=False, columnspacing=1.2)
    return legend_rows


def draw_memory(axis, memory, start, end, scale, ranks):
    for rank in range(ranks):
        own = memory[memory["rank"] == rank]
        if len(own) == 0:
            continue
        times = [(time - start) * scale for time in own["time"]] + [(end - start) * scale]
        bytes_in_use = [value / 2**20 for value in own["in_use"]]
        axis.step(times, bytes_in_use + bytes_in_use[-1:], where="post", linewidth=1, label=f"rank {rank}")
    axis.set_ylabel("device memory [MiB]", fontsize=9)
    axis.set_ylim(bottom=0)
    axis.grid(True, color="0.9")
    axis.legend(fontsize=7, ncol=2, loc="lower right")


def draw(path, step, output):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    spans, memory, names, schedule, ranks = read(path)
    spans, step = select(spans, step, path)
    memory = memory[memory["step"] == step]
    start, end = spans["start"].min(), spans["end"].max()
    unit, scale = ("s", 1.0) if end - start >= 2 else ("ms", 1e3)
    rows, height = lay_out(spans, names)
    panels = 2 if len(memory) else 1
    figure, axes = plt.subplots(panels, 1, figsize=(13, 1.5 + 0.38 * height + 2.4 * (panels - 1)), sharex=True, squeeze=False,
                                constrained_layout=True,
                                gridspec_kw={"height_ratios": [0.38 * height + 0.8, 2.4][:panels]})
    top = axes[0][0]
    legend_rows = draw_spans(top, spans, rows, names, start, scale)
    top.set_ylim(height, 0)
    top.set_xlim(0, (end - start) * scale)
    top.set_title(f"{schedule}, {ranks} ranks, step {step}: bubble {100 * bubble(spans, names, ranks):.1f} %", fontsize=12,
                  pad=8 + 17 * legend_rows)
    if panels == 2:
        draw_memory(axes[1][0], memory, start, end, scale, ranks)
    axes[-1][0].set_xlabel(f"time [{unit}]")
    top.tick_params(labelbottom=panels == 1)
    figure.savefig(output, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", help="a run's folder, or its trace.h5")
    parser.add_argument("--step", type=int, help="the step to draw (default: the last one that the trace holds)")
    parser.add_argument("--output", help="the PNG to write (default: the trace's name with .png)")
    arguments = parser.parse_args()
    trace = pathlib.Path(arguments.trace)
    if trace.is_dir():
        trace = trace / "trace.h5"
    if not trace.is_file():
        sys.exit(f"error: {trace}: no such file; give a run's folder or its trace.h5, which output.trace: true writes")
    output = arguments.output or str(trace.with_suffix(".png"))
    try:
        draw(str(trace), arguments.step, output)
    except ImportError as error:
        sys.exit(f"error: {error}; install python3-h5py and python3-matplotlib")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {output}: {error}")
    print(output)


if __name__ == "__main__":
    main()
