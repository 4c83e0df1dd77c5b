"""Every node computed twice: by its device, and from the same inputs by another one.

Devices round the activations of a product with coarse weights, by an amount that depends on the
data: one outlier decides the step of its block. The other device is given the same rounding
(`ROUNDINGS`), so that products are compared closely. The angles of ROPE are running products in
float32: their bound grows with the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.backend import (
    Bytes,
    CompileOptions,
    Device,
    Program,
    get_tensor,
    set_tensor,
    tensor_bytes,
)
from ggml_py.errors import GGMLError
from ggml_py.kernels import describe
from ggml_py.opspec import OPS
from ggml_py.tensor import FLAG_WEIGHT, Tensor

Values = npt.NDArray[Any]

ROUNDED = 5e-4  # bound where a source is kept in 16 bits or fewer: kernels may round the others too
EXACT = 1e-6
CLOSE = 2e-5  # of a product whose activations are rounded alike; a few are halves of a step
GAIN = 5e-3  # by which the values of a row may be too large or too small together
ROW = 32  # values of a row or column whose roundings cancel
FEWEST = 1e-3  # part of the mean energy of columns below which errors are those of other values
PRODUCTS = ("MUL_MAT", "MUL_MAT_ID")


def _to_int8(block: int) -> Callable[[Values], Values]:
    """Rounding to 127 steps of the largest value of a block."""

    def rounded(x: Values) -> Values:
        n = x.shape[-1]
        padded = np.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, -n % block)])
        blocks = padded.reshape(*x.shape[:-1], -1, block)
        step = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
        levels = np.rint(np.divide(blocks, step, where=step > 0, out=np.zeros_like(blocks)))
        found: Values = (levels * step).reshape(padded.shape)[..., :n]
        return found

    return rounded


def _to_f16(x: Values) -> Values:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def _to_bf16(x: Values) -> Values:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    found: Values = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)
    return found


# what devices make of a product's activations, by whether the weights have blocks
ROUNDINGS: dict[bool, tuple[Callable[[Values], Values], ...]] = {
    True: (_to_int8(32), _to_int8(256), _to_f16, _to_bf16),
    False: (_to_f16, _to_bf16),
}


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
        problem = min((_difference(e, get_tensor(node), bound)
                       for e, bound in self.references(node, twin)), key=bool)  # fmt: skip
        if problem:
            raise CheckFailed(
                f"{node.name}: {describe(node)}: {by} differs from {self.device.name}: {problem}"
            )

    def references(self, node: Tensor, twin: Tensor) -> Iterator[tuple[Values, float]]:
        """Yield values that the node may have, each with its bound: those of its sources as they
        are, then those of rounded activations."""
        weight = twin.optional(0)
        rounds = twin.op in PRODUCTS and weight is not None and is_coarse(weight)
        yield get_tensor(twin), CLOSE if rounds else bound_of(node)
        if not rounds or weight is None:
            return
        x = twin.source(1)
        values = get_tensor(x)
        for rounded in ROUNDINGS[weight.type.block_size > 1]:
            copy = Tensor(x.type, x.ne, name=x.name)
            copy.buffer = self.device.alloc(max(copy.nbytes, 1))
            set_tensor(copy, rounded(values))
            sources = (weight, copy, *twin.src[2:])
            again = Tensor(twin.type, twin.ne, twin.op, sources, twin.params, twin.name, twin.nb)
            again.buffer = self.device.alloc(max(again.nbytes, 1))
            self.device.compile([again], CompileOptions(fuse=False)).run()
            yield get_tensor(again), CLOSE

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


def is_coarse(t: Tensor) -> bool:
    """Return True for values of 16 bits or fewer."""
    return t.type.block_size > 1 or t.type.type_size < 4


def bound_of(node: Tensor) -> float:
    """Return the largest normalised mean squared error that rounding explains."""
    if any(t is not None and is_coarse(t) for t in (node, *node.src)):
        return ROUNDED
    if node.op not in ("ROPE", "ROPE_BACK"):
        return EXACT
    farthest = float(np.abs(get_tensor(node.source(1)).astype(np.float64)).max(initial=0))
    return EXACT + 8 * (farthest * 2.0**-24) ** 2


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
        return _gain(e, error)
    worst = np.abs(error) == np.abs(error).max()
    return f"NMSE {nmse:.2e}, the bound is {bound:.0e}; worst {_at(worst, e, f)}"


def _gain(e: Values, error: Values) -> str:
    """ "" if no row, nor a column of a matrix, is a few thousandths too large or too small.

    Rows of a matrix count alike in its columns: the largest may be 1000 times another.

    e      float64 [ne3, ne2, ne1, ne0]; error of these
    """
    if not np.isfinite(e).all():
        return ""
    length = np.sqrt(np.square(e).sum(-1, keepdims=True))
    scale = np.divide(1, length, where=length > 0, out=np.zeros_like(length))
    for axis, what, by, least in ((-1, "row", 1.0, EXACT), (-2, "column", scale, FEWEST)):
        energy, along = np.square(e * by).sum(axis), (error * e * by**2).sum(axis)
        wrong = np.abs(along) > GAIN * energy + least * energy.mean()
        if e.shape[axis] >= ROW and wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            found = along[at] / energy[at] if energy[at] else np.inf
            return f"{what} {list(at[::-1])} is off by {found:+.2%}"
    return ""


def _at(where: Values, expected: Values, found: Values) -> str:
    """`at [i0, i1, i2, i3]: expected x, got y` of the first place."""
    place = tuple(int(i) for i in np.argwhere(where)[0])
    return f"at {list(place[::-1])}: expected {expected[place]:.7g}, got {found[place]:.7g}"
