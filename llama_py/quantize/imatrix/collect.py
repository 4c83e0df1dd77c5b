"""Collection of squared inputs of weight matrices while a model runs (collect_imatrix)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ggml_py.backend import Device
from ggml_py.errors import ContextError
from ggml_py.plan.taps import Taps
from ggml_py.tensor import FLAG_COMPUTE, Tensor
from ggml_py.types import F32
from llama_py.graph.result import GraphResult
from llama_py.hooks.values import Values, read
from llama_py.quantize.imatrix.file import Counts, Imatrix, ImatrixEntry

Sums = npt.NDArray[np.float64]

FEWEST = 16  # minimum tokens; smaller products are ignored, like in llama.cpp
OUTPUT = "output.weight"


@dataclass
class _Sums:
    """Sums of an `ImatrixEntry`, in double precision."""

    sums: Sums
    counts: Counts


class Collector:
    """Sums by weight, for all graphs that run while its taps are active (`Context.tap`).

    process_output  include the output matrix
    Experts count their routed tokens; other matrices count all tokens.
    """

    def __init__(self, devices: Sequence[Device], process_output: bool = False) -> None:
        self.devices = list(devices)
        self.process_output = process_output
        self.entries: dict[str, _Sums] = {}
        self.datasets: list[str] = []

    def taps(self, res: GraphResult) -> Taps | None:
        """Return taps that read the inputs of every product."""
        computed = (t for t in res.graph.nodes if t.flags & FLAG_COMPUTE)
        products = [t for t in computed if self._is_wanted(t)]
        inputs = {id(t): id(t.src[1]) for t in products}  # as built: several devices read copies
        readers = Counter(inputs.values())
        left = readers.copy()  # products that this run has not computed yet, in any order
        known: dict[int, Sums] = {}  # sums of squares by input

        def tell(t: Tensor) -> None:
            x = inputs[id(t)]
            sums = self.see(t, known.pop(x, None))
            left[x] -= 1
            if sums is not None and left[x]:
                known[x] = sums
            left[x] = left[x] or readers[x]

        return Taps(tell, sources=products) if products else None

    def _is_wanted(self, t: Tensor) -> bool:
        if t.op == "MUL_MAT_ID":
            return True
        if t.op != "MUL_MAT" or t.src[0] is None or t.src[1] is None:
            return False
        if t.src[1].ne[1] < FEWEST or t.src[1].type != F32:
            return False
        name = t.src[0].name
        return name.startswith("blk.") or (self.process_output and name == OUTPUT)

    def see(self, t: Tensor, known: Sums | None) -> Sums | None:
        """Add the inputs of a product that was just computed, and return their sums of squares.

        known  these sums, if another product had the same inputs; None for experts, since each
               gets other tokens

        Raises ContextError for values that are not finite, or of another size than before.
        """
        weight, x = t.src[0], t.src[1]
        assert weight is not None and x is not None
        if t.op == "MUL_MAT_ID":
            ids = t.src[2]
            assert ids is not None
            self._see_experts(weight, read(x, self.devices), read(ids, self.devices))
            return None
        if known is None:
            values: Values = read(x, self.devices).reshape(-1, x.ne[1], x.ne[0])
            known = np.einsum("brn,brn->bn", values, values, dtype=np.float64)
        self._see_dense(weight, x, known)
        return known

    def _entry(self, weight: Tensor, n: int, n_matrices: int, n_counts: int) -> _Sums:
        name = weight.name
        entry = self.entries.get(name)
        if entry is None:
            empty = np.zeros(n * n_matrices), np.zeros(n_counts, np.int64)
            entry = self.entries[name] = _Sums(*empty)
        if len(entry.sums) != n * n_matrices:
            raise ContextError(
                f"{name}: {n * n_matrices} inputs do not match its {len(entry.sums)} sums from "
                "earlier files; use files of the same model"
            )
        if len(entry.counts) == 1 < n_counts:
            entry.counts = np.repeat(entry.counts, n_counts)
        return entry

    def _see_dense(self, weight: Tensor, x: Tensor, sums: Sums) -> None:
        n, (_, _, ne2, ne3) = x.ne[0], weight.ne
        entry = self._entry(weight, n, ne2 * ne3, 1)
        if len(entry.counts) > 1 and (entry.counts == entry.counts[0]).all():
            entry.counts = entry.counts[:1].copy()
        by_matrix = entry.sums.reshape(ne2 * ne3, n)
        for i, squares in enumerate(sums):
            i2, i3 = i % x.ne[2], i // x.ne[2]
            by_matrix[i3 % ne3 * ne2 + i2 % ne2] += squares
        entry.counts += x.ne[1] * x.ne[2] * x.ne[3] // (ne2 * ne3)
        self._check(weight.name, by_matrix)

    def _see_experts(self, weight: Tensor, x: Values, ids: Values) -> None:
        n_experts, n = weight.ne[2], x.shape[-1]
        entry = self._entry(weight, n, n_experts, n_experts)
        x = x.reshape(ids.shape[0], -1, n)
        squares = np.square(x, dtype=np.float64)
        by_expert = entry.sums.reshape(n_experts, n)
        for expert in np.unique(ids):
            tokens, places = np.nonzero(ids == expert)
            by_expert[expert] += squares[tokens, places % x.shape[1]].sum(axis=0)
            entry.counts[expert] += len(tokens)
        self._check(weight.name, by_expert)

    def _check(self, name: str, sums: Sums) -> None:
        if not np.isfinite(sums).all():
            raise ContextError(f"{name}: inputs are not finite; check whether the model is damaged")

    def n_chunks(self, size: int) -> int:
        """Return the maximum count of the entries in chunks of `size` tokens."""
        return max((int(e.counts.max()) for e in self.entries.values()), default=0) // size

    def add(self, other: Imatrix, size: int) -> None:
        """Add earlier data. `size`: size of chunks, for files without it.

        Raises ContextError for entries of another size.
        """
        for name, entry in other.entries.items():
            times = size if other.old else 1
            sums, counts = entry.sums.astype(np.float64) * times, entry.counts * times
            mine = self.entries.get(name)
            if mine is None:
                self.entries[name] = _Sums(sums, counts)
                continue
            if len(mine.counts) == 1 < len(counts):
                mine.counts = np.repeat(mine.counts, len(counts))
            elif len(counts) == 1:
                counts = np.repeat(counts, len(mine.counts))
            if len(mine.sums) != len(sums) or len(mine.counts) != len(counts):
                raise ContextError(
                    f"{other.path}: {name} has {len(sums)} sums of {len(counts)} matrices, but "
                    f"earlier files have {len(mine.sums)} of {len(mine.counts)}; use files of "
                    "the same model"
                )
            mine.sums += sums
            mine.counts += counts
        self.datasets += other.datasets

    def result(self, path: str, size: int) -> Imatrix:
        """Return all collected data."""
        entries = {
            name: ImatrixEntry(e.sums.astype(np.float32), e.counts)
            for name, e in self.entries.items()
        }
        return Imatrix(path, entries, self.datasets, self.n_chunks(size), size)
