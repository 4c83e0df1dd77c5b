"""The ratios as a picture; needs matplotlib, `pip install '.[plot]'`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from dev.compare.speed.results import Record


def available() -> bool:
    """Return True if matplotlib is installed."""
    return find_spec("matplotlib") is not None


def points(records: Sequence[Record]) -> dict[str, list[tuple[int, float]]]:
    """Return threads and ratio of each measured model, by test."""
    found: dict[str, list[tuple[int, float]]] = {}
    for r in records:
        if r.ratio is not None:
            found.setdefault(r.test.label, []).append((r.threads, r.ratio))
    return found


def draw(records: Sequence[Record], path: Path) -> None:
    """Write the picture, with one line per test and one point per model; ValueError without
    matplotlib or data."""
    tests = points(records)
    if not tests:
        raise ValueError("nothing to draw: no test has a ratio")
    if not available():
        raise ValueError("a plot needs matplotlib: pip install '.[plot]'")
    figure = import_module("matplotlib.figure").Figure(
        figsize=(8, 1.2 + 0.35 * len(tests)), layout="constrained"
    )
    axes = figure.subplots()
    counts = sorted({n for found in tests.values() for n, _ in found}, reverse=True)
    for i, count in enumerate(counts):
        at = [
            (ratio, y) for y, found in enumerate(tests.values()) for n, ratio in found if n == count
        ]
        ratios, lines = zip(*at, strict=True)
        shift = (i - (len(counts) - 1) / 2) * 0.25
        label = f"{count} thread{'s' * (count != 1)}"
        axes.scatter(ratios, [y + shift for y in lines], s=18, alpha=0.7, label=label)
    axes.set_yticks(range(len(tests)), tests, fontsize="small")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.grid(axis="y", linewidth=0.3)
    axes.invert_yaxis()
    axes.set_xlabel("ours / best of the others, a point a model")
    axes.legend(fontsize="small")
    figure.savefig(path)
