"""Judge that decides if a node's values are right, for `--check` and llama-py-graph diff.

Devices round the activations of a matmul with coarse weights, by an amount that depends on the
data: one outlier decides the step of its block. The reference gets the same rounding (`ROUNDINGS`),
so that the bounds of matmuls are narrow. The angles of ROPE are running products in float32: their
bound grows with the positions.

A bound for a whole tensor does not reveal one wrong row in a thousand. Therefore `compare_values`
also compares each row, and rows and columns must not be too large or too small as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ggml_py._moved import Former, former_names
from ggml_py.backend import get_tensor
from ggml_py.opspec import OPS
from ggml_py.tensor import Tensor
from ggml_py.types import GGMLType

Values = npt.NDArray[Any]  # [ne3, ne2, ne1, ne0]
Bound = float | Values  # bound of a tensor, or of each of its rows [ne3, ne2, ne1]

EXACT = 1e-6  # NMSE that float32 explains, of a tensor and of each of its rows
CLOSE = 2e-5  # NMSE of a matmul with equally rounded activations; a few are halves of a step
GAIN = 5e-3  # relative error of a row's mean that is allowed
SIGMAS = 6  # deviations of the mean of independent roundings that GAIN must exceed
TIES = 0.05  # share of a row's quantized values that may be the next step
STEPS = np.float32(127)
FEWEST = 1e-3  # part of the rows' typical energy; smaller errors count as rounding


@dataclass(frozen=True, slots=True)
class Error:
    """Distance of a tensor's values from expected values.

    nmse      squared differences over squares; infinite if only one value of a pair is finite. For
              integers, the share of differing values.
    largest   difference, at ggml's place `at`, of `found` from `expected`
    problem   why the values are wrong; "" if rounding explains the distance
    """

    nmse: float
    largest: float = 0.0
    at: tuple[int, ...] = ()
    found: float = 0.0
    expected: float = 0.0
    problem: str = ""

    @property
    def worst_element(self) -> str:
        """Return `at [i0, i1, i2, i3]: expected x, got y`."""
        return f"at {list(self.at)}: expected {self.expected:.7g}, got {self.found:.7g}"

    worst = Former("worst_element")


NONE = Error(0.0)


def compare_values(
    expected: Values, found: Values, bound: Bound, type: GGMLType, *, rows: bool = True
) -> Error:
    """Compare two arrays of one shape.

    Order within a row of integers is free: equal keys may be sorted either way.

    Args:
        expected: Values of the reference.
        found: Values to judge.
        bound: Largest normalized mean squared error that rounding explains.
        type: Type of the node. Values of quantized types are passed as floats.
        rows: If False, only the error of the whole tensor counts.
    """
    whole = is_integer(type)
    if whole:
        expected, found = np.sort(expected), np.sort(found)
    same = (expected == found) | (np.isnan(expected) & np.isnan(found))
    if same.all():
        return NONE
    e, f = expected.astype(np.float64), found.astype(np.float64)
    odd = ~same & ~(np.isfinite(e) & np.isfinite(f))
    if odd.any():
        return _apply_bound(_error(np.inf, odd, e, f), 0.0)
    apart = np.where(same, 0.0, np.subtract(f, e, where=~same, out=np.zeros_like(e)))
    finite = np.where(np.isfinite(e), e, 0.0)
    energy = np.square(finite).sum(-1)
    scale = float(energy.sum()) or 1.0
    nmse = float(np.square(apart).sum()) / scale
    distance = np.abs(apart)
    error = _error(float((~same).mean()) if whole else nmse, distance == distance.max(), e, f)
    error = _apply_bound(error, max(float(np.min(bound)), float((energy * bound).sum()) / scale))
    if error.problem or whole or not rows:
        return error
    if type.is_quantized:
        apart = np.where((~same).mean(-1, keepdims=True) > TIES, apart, 0.0)
    return replace(error, problem=_row_problem(finite, apart, bound))


def closest(references: Iterable[tuple[Values, Bound]], found: Values, type: GGMLType) -> Error:
    """Return the error from the first values that explain `found`, or from the closest.

    Args:
        references: Values that a node may have, each with its bound.
        found: Values to judge.
        type: Type of the node.
    """
    best: Error | None = None
    for expected, bound in references:
        error = compare_values(expected, found, bound, type)
        if not error.problem:
            return error
        best = error if best is None or error.nmse < best.nmse else best
    return best or NONE


def is_integer(type: GGMLType) -> bool:
    """Return True for types of whole numbers."""
    return type.name[0] == "i" and type.name[1:].isdigit()


def is_coarse(type: GGMLType) -> bool:
    """Return True for values of 16 bits or fewer."""
    return type.block_size > 1 or type.type_size < 4


def is_rounded(op: str, types: Iterable[GGMLType | None]) -> bool:
    """Return True if kernels may round a source of this op, for sources of these types."""
    kinds = tuple(types)
    return any(
        i < len(kinds) and (kind := kinds[i]) is not None and is_coarse(kind)
        for i in OPS[op].rounds[:1]
    )


def error_bound(node: Tensor) -> float:
    """Return the largest normalized mean squared error that rounding explains."""
    if is_integer(node.type):
        return 0.0
    if is_rounded(node.op, (None if s is None else s.type for s in node.src)):
        return CLOSE
    if node.op not in ("ROPE", "ROPE_BACK"):
        return EXACT
    farthest = float(np.abs(get_tensor(node.source(1)).astype(np.float64)).max(initial=0))
    return EXACT + 8 * (farthest * 2.0**-24) ** 2


def _to_int8(block: int, inverse: Callable[[Values], Values]) -> Callable[[Values], Values]:
    """Return a function that rounds to 127 steps of the largest value of a block.

    Args:
        block: Values of a block. Blocks of 32 keep their step as float16.
        inverse: Function of the largest values: steps per unit, as a kernel computes them. A value
            between two steps may round either way; next to an outlier, this error is large.
    """

    def round_blocks(x: Values) -> Values:
        levels, step = _levels(x, block, inverse)
        found: Values = levels * (step if block > 32 else _to_f16(step))
        return found.reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]

    return round_blocks


def _levels(x: Values, block: int, inverse: Callable[[Values], Values]) -> tuple[Values, Values]:
    """Return integers [..., n_blocks, block], and the steps [..., n_blocks, 1] they count."""
    padded = np.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, -x.shape[-1] % block)]).astype(np.float32)
    blocks = padded.reshape(*x.shape[:-1], -1, block)
    most = np.abs(blocks).max(-1, keepdims=True)
    with np.errstate(divide="ignore", over="ignore"):
        levels: Values = np.rint(blocks * np.where(most > 0, inverse(most), np.float32(0)))
    return levels, most / STEPS


def dither(x: Values) -> Iterator[Values]:
    """Yield independent roundings to float16."""
    for factor in (1.0, 1.1, 1.3, 1.7):
        yield _to_f16(x * np.float32(factor)) / np.float32(factor)


def sensitive(plain: Values, others: Iterable[Values]) -> Values:
    """Return bounds of each row [ne3, ne2, ne1], from the effect of rounding one source.

    Attention weights are exponentials: kernels that also round keys or weights to 16 bits change
    rows as much as float16 queries do. A row with one dominant weight changes most.
    """
    plain, energy = plain.astype(np.float64), np.square(plain.astype(np.float64)).sum(-1)
    change = SIGMAS * np.max([np.square(x - plain).sum(-1) for x in others], axis=0)
    found: Values = np.divide(change, energy, where=energy > 0, out=np.zeros_like(energy))
    return CLOSE + found


def sum_errors(x: Values) -> Values:
    """Return the errors [..., n / 32] of sums of rounded activations.

    Weights with a minimum per block of 32 are multiplied with the sum of a block of activations,
    stored as float16 (ggml-common.h:block_q8_1).
    """
    levels, step = _levels(x, 32, _direct)
    total = levels.sum(-1, keepdims=True)
    found: Values = (_to_f16(step * total) - _to_f16(step) * total)[..., 0]
    return found


def _direct(most: Values) -> Values:
    inverse: Values = STEPS / most
    return inverse


def _of_step(most: Values) -> Values:
    inverse: Values = np.float32(1) / (most / STEPS)
    return inverse


def _to_f16(x: Values) -> Values:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def _to_bf16(x: Values) -> Values:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    found: Values = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)
    return found


# roundings of a matmul's activations on devices, by whether the weights have blocks
ROUNDINGS: dict[bool, tuple[Callable[[Values], Values], ...]] = {
    True: (
        _to_int8(32, _direct),
        _to_int8(256, _direct),
        _to_f16,
        _to_bf16,
        _to_int8(32, _of_step),
        _to_int8(256, _of_step),
    ),
    False: (_to_f16, _to_bf16),
}


def _error(nmse: float, where: npt.NDArray[np.bool_], e: Values, f: Values) -> Error:
    place = tuple(int(i) for i in np.argwhere(where)[0])
    both = np.isfinite(e[place]) and np.isfinite(f[place])
    largest = float(abs(f[place] - e[place])) if both else np.inf
    return Error(nmse, largest, place[::-1], float(f[place]), float(e[place]))


def _apply_bound(error: Error, bound: float) -> Error:
    if error.nmse <= bound:
        return error
    return replace(error, problem=f"NMSE {error.nmse:.2e}, the bound is {bound:.0e}")


def _row_problem(e: Values, apart: Values, bound: Bound) -> str:
    """Return which row, or column of a matrix, is wrong.

    Rows of a matrix count alike in its columns: the largest may be 1000 times another.

    Args:
        e: Expected values, float64 [ne3, ne2, ne1, ne0]; 0 for values that are not finite.
        apart: Differences from the expected values.
        bound: Largest normalized mean squared error that rounding explains.
    """
    n, energy, error = e.shape[-1], np.square(e).sum(-1), np.square(apart).sum(-1)
    typical = _typical(energy)
    least = (FEWEST + 1 / n) * typical  # few values may cancel all at once
    bounds = np.broadcast_to(bound, energy.shape)
    if (wrong := error > bounds * (energy + least)).any():
        at = _first_index(wrong)
        nmse = error[at] / (energy[at] or 1.0)
        return f"row {list(at[::-1])}: NMSE {nmse:.2e}, the bound is {bounds[at]:.0e}"
    noise, other = np.minimum(bounds, CLOSE) * energy / n, EXACT * typical
    if not isinstance(bound, float):  # weights of a softmax change together
        other = other + np.sqrt(bounds - CLOSE) * energy
    if problem := _gain(energy, (apart * e).sum(-1), noise, other):
        return f"row {problem}"
    if np.max(bound) > CLOSE:  # rotations preserve the length of a row, not of a column
        return ""
    scale = np.divide(1, energy, where=energy > 0, out=np.zeros_like(energy))
    columns, along = ((x * e * scale[..., None]).sum(-2) for x in (e, apart))
    problem = _gain(columns, along, bound * columns / e.shape[-2], FEWEST * _typical(columns))
    return f"column {problem}" if problem else ""


def _gain(energy: Values, along: Values, noise: Values, least: Bound) -> str:
    """Return the first row that is too large or too small as a whole, and by how much.

    Args:
        energy: Squares of each row.
        along: Products of differences and values.
        noise: Energy of independent errors, of one value.
        least: Product that errors of other rows explain.
    """
    limit = np.maximum(GAIN * energy, SIGMAS * np.sqrt(noise * energy))
    wrong = np.abs(along) > limit + least
    if not wrong.any():
        return ""
    at = _first_index(wrong)
    return f"{list(at[::-1])} is off by {along[at] / (energy[at] or 1.0):+.2%}"


def _typical(energy: Values) -> float:
    """Return the median of rows that are not 0: few may be 1000 times another."""
    some = energy[energy > 0]
    return float(np.median(some)) if some.size else 0.0


def _first_index(where: Values) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(where)[0])


if not TYPE_CHECKING:
    __getattr__ = former_names(
        __name__, bound_of="error_bound", dithered="dither", error_of="compare_values"
    )
