"""Every node computed twice: by its device, and from the same inputs by another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.backend import Bytes, CompileOptions, Device, Program, get_tensor, tensor_bytes
from ggml_py.errors import GGMLError
from ggml_py.kernels import describe
from ggml_py.opspec import OPS
from ggml_py.tensor import FLAG_WEIGHT, Tensor

Values = npt.NDArray[Any]

ROUNDED = 5e-4  # bound where a source is kept in 16 bits or fewer: kernels may round the others too
EXACT = 1e-6


class CheckFailed(GGMLError):
    """A node's values on its device are not those of the device it was checked with."""


class Checker:
    """Runs nodes on `device` too and compares: CheckFailed at the first that differs too much.

    weights    the bytes of a weight in ggml's own layout, by its name; None if not known
    n_checked  how many nodes were compared
    n_skipped  how many the device cannot run
    """

    def __init__(
        self, device: Device, weights: Callable[[str], Bytes | None] = lambda _: None
    ) -> None:
        self.device = device
        self.weights = weights
        self.n_checked = 0
        self.n_skipped = 0
        self._weights: dict[int, Tensor] = {}

    def text(self) -> str:
        """What was compared so far."""
        skipped = f", {self.n_skipped} left out that it cannot run" if self.n_skipped else ""
        return f"check: {self.n_checked} nodes are those of {self.device.name}{skipped}"

    def checked(self, program: Program, node: Tensor, by: str) -> Program:
        """A program that runs `program`, which computes the node on device `by`, and compares."""
        return _Checked(self, program, node, by)

    def twin(self, node: Tensor) -> Tensor:
        """The same op on this device, on copies of what the sources have now."""
        sources = tuple(None if s is None else self._copy(s) for s in node.src)
        twin = Tensor(node.type, node.ne, node.op, sources, node.params, node.name, node.nb)
        for i in OPS[node.op].writes:  # the result may be one of the sources that are written
            s, copy = (t[i] if i < len(t) else None for t in (node.src, sources))
            if s is not None and copy is not None and s.root is node.root and s.same_layout(node):
                twin.buffer, twin.offset = copy.buffer, copy.offset
                return twin
        twin.buffer = self.device.alloc(max(node.nbytes, 1))
        twin.buffer.write(0, tensor_bytes(node))  # of a view, only a part may be written
        return twin

    def compare(self, node: Tensor, twin: Tensor, by: str) -> None:
        """CheckFailed if the node's values are not the twin's."""
        self.n_checked += 1
        found, expected = get_tensor(node), get_tensor(twin)
        problem = _difference(expected, found, _bound(node))
        if problem:
            raise CheckFailed(
                f"{node.name}: {describe(node)}: {by} differs from {self.device.name}: {problem}"
            )

    def _copy(self, source: Tensor) -> Tensor:
        if source.flags & FLAG_WEIGHT and id(source) in self._weights:
            return self._weights[id(source)]
        copy = Tensor(source.type, source.ne, name=source.name, nb=source.nb)
        own = self.weights(source.name) if source.layout else None
        data = tensor_bytes(source) if own is None else own
        copy.layout = source.layout if own is None else ""
        copy.buffer = self.device.alloc(max(data.size, 1))
        copy.buffer.write(0, data)
        if source.flags & FLAG_WEIGHT:
            self._weights[id(source)] = copy
        return copy


class _Checked:
    """A node's program, with the other device's before and after it."""

    def __init__(self, checker: Checker, program: Program, node: Tensor, by: str) -> None:
        self.checker = checker
        self.program = program
        self.node = node
        self.by = by

    def run(self) -> None:
        checker, node = self.checker, self.node
        if node.is_empty():
            self.program.run()
            return
        twin = checker.twin(node)
        reason = checker.device.why_not(twin)
        self.program.run()
        if reason:
            checker.n_skipped += 1
            return
        checker.device.compile([twin], CompileOptions(fuse=False)).run()
        checker.compare(node, twin, self.by)


def _bound(node: Tensor) -> float:
    """The largest normalised mean squared error that rounding explains."""
    coarse = any(
        t is not None and (t.type.block_size > 1 or t.type.type_size < 4) for t in (node, *node.src)
    )
    return ROUNDED if coarse else EXACT


def _difference(expected: Values, found: Values, bound: float) -> str:
    """ "" if the values agree. Order within a row of integers is free: equal keys may be sorted
    either way. A quantized result, whose values are not known here, may differ in few bytes."""
    if expected.dtype == np.uint8:
        share = float(np.mean(expected != found))
        return f"{share:.1%} of the bytes" if share > 0.05 else ""
    if expected.dtype.kind == "i":
        expected, found = np.sort(expected), np.sort(found)
        wrong = expected != found
        return _at(wrong, expected, found) if wrong.any() else ""
    e, f = expected.astype(np.float64), found.astype(np.float64)
    same = (e == f) | (np.isnan(e) & np.isnan(f))
    odd = ~same & ~(np.isfinite(e) & np.isfinite(f))
    if odd.any():
        return _at(odd, e, f)
    error = np.where(same, 0.0, np.subtract(f, e, where=~same, out=np.zeros_like(e)))
    scale = float(np.square(e, where=np.isfinite(e), out=np.zeros_like(e)).sum())
    nmse = float(np.square(error).sum()) / (scale or 1.0)
    if nmse <= bound:
        return ""
    worst = np.abs(error) == np.abs(error).max()
    return f"NMSE {nmse:.2e}, the bound is {bound:.0e}; worst {_at(worst, e, f)}"


def _at(where: Values, expected: Values, found: Values) -> str:
    """`at [i0, i1, i2, i3]: expected x, got y` of the first place."""
    place = tuple(int(i) for i in np.argwhere(where)[0])
    return f"at {list(place[::-1])}: expected {expected[place]:.7g}, got {found[place]:.7g}"
