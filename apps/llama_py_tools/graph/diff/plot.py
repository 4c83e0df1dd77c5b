"""Plot the errors of all nodes, or write them as an overlay for the graph page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ggml_py.errors import GGMLError
from ggml_py.inspection.judge import Error
from ggml_py.machine.extras import install_hint
from llama_py_tools.graph.diff.found import RunComparison

LEAST, MOST = 1e-17, 1e3  # errors are clipped to this range


def plot(found: RunComparison, path: str) -> None:
    """Plot each node's error in separate runs, and its error with equal inputs.

    Raises GGMLError without matplotlib.
    """
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError as e:
        raise GGMLError(f"--plot needs matplotlib ({install_hint('plot')}): {e}") from e
    figure, axes = plt.subplots(figsize=(12, 4.5), layout="constrained")
    try:
        _draw(axes, found)
        figure.savefig(path)
    except ValueError as e:
        raise GGMLError(f"--plot {path}: {e}") from e
    finally:
        plt.close(figure)


def _draw(axes: Any, found: RunComparison) -> None:
    nodes = [n for n in found.nodes if not str(n.record["type"]).startswith("i")]
    x = range(len(nodes))
    shown = [_plotted_error(n.error) for n in nodes]
    axes.semilogy(x, shown, lw=1, color="#0550ae", label="both run by themselves")
    if found.known:
        own = [_plotted_error(n.made) for n in nodes]
        axes.semilogy(x, own, ".", ms=3, color="#777777", label="given the same inputs")
    wrong = [(i, n) for i, n in enumerate(nodes) if n.is_far]
    if wrong:
        tops = [_plotted_error(n.made or n.error) for _, n in wrong]
        axes.semilogy([i for i, _ in wrong], tops, "o", ms=4, color="#cf222e", label="too far off")
        axes.annotate(
            wrong[0][1].name,
            (wrong[0][0], tops[0]),
            xytext=(6, 6),
            textcoords="offset points",
            color="#cf222e",
        )
    starts = [i for i, n in enumerate(nodes) if not i or n.layer != nodes[i - 1].layer]
    for i in starts[1:]:
        axes.axvline(i - 0.5, color="#dddddd", lw=0.6, zorder=0)
    apart, ticks = len(nodes) / 16, list[int]()
    for i in starts:
        if not ticks or i - ticks[-1] >= apart:
            ticks.append(i)
    axes.set_xticks(ticks, [nodes[i].layer for i in ticks], rotation=30, ha="right")
    axes.set_ylabel("NMSE")
    axes.set_title(f"{found.ours.what} beside {found.theirs.what}")
    axes.legend(loc="upper left")


def _plotted_error(error: Error | None) -> float:
    """Return the error to plot; a missing error is NaN, which matplotlib does not draw."""
    return min(MOST, max(LEAST, error.nmse)) if error and error.nmse else math.nan


def overlay(found: RunComparison) -> Iterator[str]:
    """Yield one line of JSON per node, with its record and its errors by name."""
    for n in found.nodes:
        values = {"error": n.error.nmse}
        if n.made is not None:
            values["own error"] = n.made.nmse
        finite = {name: min(value, MOST) for name, value in values.items()}
        yield json.dumps({**n.record, "overlay": finite}, separators=(",", ":")) + "\n"


def write_overlay(found: RunComparison, path: str) -> None:
    with Path(path).open("w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(overlay(found))
