"""Statistics of an importance matrix, by tensor and by layer (imatrix.cpp:show_statistics)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llama_py.quantize.imatrix.file import Imatrix

INACTIVE = 1e-5
HEAD = (
    "Layer",
    "Tensor",
    "sum(x^2)",
    "Min",
    "Max",
    "Mean",
    "Std",
    "% Active",
    "N",
    "Entropy",
    "E (norm)",
    "ZD",
    "CosSim",
)
_LAYER = re.compile(r"blk\.(\d+)\.")


@dataclass
class ImatrixStatistics:
    """Statistics of mean squares, without experts that no token used.

    z  the share that is more than a standard deviation above the mean
    cossim  cosine similarity of the sums with the previous layer's
    """

    layer: int
    kind: str
    total: float
    least: float
    most: float
    mean: float
    deviation: float
    active: float
    n: int
    entropy: float
    z: float
    cossim: float

    def line(self) -> str:
        norm = 100 * self.entropy / math.log2(self.n) if self.n > 1 else 0.0
        layer = "-" if self.layer < 0 else str(self.layer)
        return (
            f"{layer:>5}  {self.kind:20} {self.total:14.2f} {self.least:10.4f} {self.most:12.4f}"
            f" {self.mean:10.4f} {self.deviation:10.4f} {100 * self.active:8.2f}% {self.n:8}"
            f" {self.entropy:10.4f} {norm:7.2f}% {100 * self.z:8.2f}% {self.cossim:8.4f}"
        )


def lines(imatrix: Imatrix) -> Iterator[str]:
    found = sorted(_all_statistics(imatrix), key=lambda s: (s.kind, -s.total))
    yield f"{imatrix.path}: {len(found)} tensors, {imatrix.n_chunks} chunks"
    yield (
        f"{HEAD[0]:>5}  {HEAD[1]:20} {HEAD[2]:>14} {HEAD[3]:>10} {HEAD[4]:>12} {HEAD[5]:>10}"
        f" {HEAD[6]:>10} {HEAD[7]:>9} {HEAD[8]:>8} {HEAD[9]:>10} {HEAD[10]:>8} {HEAD[11]:>9}"
        f" {HEAD[12]:>8}"
    )
    for one in found:
        yield one.line()
    yield f"{'Layer':>5} {'sum(x^2)':>14} {'ZD':>10} {'CosSim':>8}"
    for layer in sorted({s.layer for s in found if s.layer >= 0}):
        these = [s for s in found if s.layer == layer]
        n = sum(s.n for s in these)
        total, z, cossim = (
            sum(s.n * value for s, value in zip(these, values, strict=True)) / n
            for values in zip(*((s.total, s.z, s.cossim) for s in these), strict=True)
        )
        yield f"{layer:5} {total:14.2f} {100 * z:9.4f}% {cossim:8.4f}"


def _all_statistics(imatrix: Imatrix) -> Iterator[ImatrixStatistics]:
    for name in imatrix.entries:
        values = _means(imatrix, name)
        if not len(values):
            continue
        found = _LAYER.search(name)
        layer = int(found[1]) if found else -1
        parts = name.split(".")
        kind = parts[parts.index("weight") - 1] if "weight" in parts[1:] else name
        yield _tensor_statistics(imatrix, name, layer, kind, values)


def _means(imatrix: Imatrix, name: str) -> npt.NDArray[np.float64]:
    entry = imatrix.entries[name]
    counts = entry.counts
    sums = entry.sums.astype(np.float64).reshape(len(counts), -1)
    return (sums[counts > 0] / counts[counts > 0, None]).ravel()


def _tensor_statistics(
    imatrix: Imatrix, name: str, layer: int, kind: str, x: npt.NDArray[np.float64]
) -> ImatrixStatistics:
    mean, deviation, total = x.mean(), x.std(), x.sum()
    shares = x[x > 0] / total if total > 0 else np.ones(1)
    z = float(((x - mean) > deviation).mean()) if deviation > 0 else 0.0
    return ImatrixStatistics(
        layer,
        kind,
        float(total),
        float(x.min()),
        float(x.max()),
        float(mean),
        float(deviation),
        float((np.abs(x) > INACTIVE).mean()),
        len(x),
        float(-(shares * np.log2(shares)).sum()),
        z,
        _cosine(imatrix, name, layer),
    )


def _cosine(imatrix: Imatrix, name: str, layer: int) -> float:
    before = imatrix.entries.get(_LAYER.sub(f"blk.{layer - 1}.", name)) if layer >= 0 else None
    if before is None:
        return 0.0
    a, b = (e.sums.astype(np.float64) for e in (imatrix.entries[name], before))
    size = math.sqrt(float((a * a).sum()) * float((b * b).sum()))
    return float((a * b).sum()) / size if len(a) == len(b) and size else 0.0
