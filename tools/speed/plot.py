"""The ratios as a picture; needs matplotlib, `pip install '.[plot]'`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from speed.results import Record


def available() -> bool:
    """Whether matplotlib is here."""
    return find_spec("matplotlib") is not None


def bars(records: Sequence[Record]) -> dict[str, list[tuple[str, float]]]:
    """By model: each test that has a ratio, and the ratio."""
    found: dict[str, list[tuple[str, float]]] = {}
    for r in records:
        if r.ratio is not None:
            name = f"{r.test.label}, {r.threads} thread{'s' * (r.threads != 1)}"
            found.setdefault(r.model, []).append((name, r.ratio))
    return found


def draw(records: Sequence[Record], path: Path) -> None:
    """Write the picture, a panel a model; ValueError without matplotlib or anything to draw."""
    models = bars(records)
    if not models:
        raise ValueError("nothing to draw: no test has a ratio")
    if not available():
        raise ValueError("a plot needs matplotlib: pip install '.[plot]'")
    new_figure = import_module("matplotlib.figure").Figure
    heights = [len(rows) for rows in models.values()]
    figure = new_figure(figsize=(8, 1 + sum(h + 2 for h in heights) * 0.25), layout="constrained")
    panels = figure.subplots(len(models), squeeze=False, height_ratios=[h + 2 for h in heights])
    for axes, (model, rows) in zip(panels[:, 0], models.items(), strict=True):
        names, ratios = zip(*rows, strict=True)
        colors = ["tab:green" if ratio >= 1 else "tab:red" for ratio in ratios]
        axes.barh(range(len(rows)), [ratio - 1 for ratio in ratios], left=1, color=colors)
        axes.set_yticks(range(len(rows)), names, fontsize="small")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axes.axvline(1, color="black", linewidth=0.8)
        axes.invert_yaxis()
        axes.set_title(model, fontsize="medium")
        axes.set_xlabel("ours / best peer")
    figure.savefig(path)
