"""What a weight type brings to matrix multiplication, and the registry of them."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from ggml_cpu.quants.activations import Activations
from ggml_cpu.target import LANES
from ggml_py.types import GGMLType

Function = Callable[..., Any]
LAYOUT = f"x{LANES}"  # the repacked layout: panels of LANES rows
BLOCKS = 1 << 40  # a `k_block` that no row reaches


@dataclass(frozen=True)
class Weight:
    """One weight type. Rows lie in ggml's own blocks ("in place") or in panels.

    A panel is `rows` rows, cut along k into steps of `step` elements, `panel_bytes` each, in the
    order in which `tile` reads them. All functions are `@fn`.

    activations   what the other operand is rounded to, and how it is packed; its block is a step,
                  which may be a part of a block of weights
    unpack        unpack(src, stride, rows, n, dst): panel of up to `rows` rows of n elements
    tile          tile(width) -> multiply(panel, columns, steps, out): `out` f32 [width][rows]
    dot           dot(src, stride, rows, column, n, out): up to `dot_rows` rows in place times one
                  column, into `out` f32 [rows]
    dots          dots(src, stride, rows, column, apart, columns, n, out): the same with up to
                  `dot_columns` columns, `apart` bytes from one to the next, into `out` f32
                  [dot_columns][dot_rows]; None where `dot` is as good
    dequantize    dequantize(src, n, dst): one row in place to f32; None for the float types
    repacked      whether weights are worth repacking at load: their panels are as small as rows
    row           row(panel, r, n, dst): row r of a panel back in place; None if not `repacked`
    k_block       steps of a panel to unpack and multiply at a time, in whole blocks
    """

    type: GGMLType
    activations: Activations
    rows: int
    panel_bytes: int
    unpack: Function
    tile: Callable[[int], Function]
    dot: Function
    dot_rows: int = 1
    dequantize: Function | None = None
    row: Function | None = None
    dots: Function | None = None
    dot_columns: int = 1
    k_block: int = BLOCKS

    @property
    def step(self) -> int:
        return self.activations.elements

    @property
    def repacked(self) -> bool:
        return self.row is not None

    def panels_bytes(self, k: int, m: int) -> int:
        """Bytes of an [k, m] matrix in panels."""
        return -(-m // self.rows) * -(-k // self.step) * self.panel_bytes


_WEIGHTS: dict[str, Weight] = {}


def register(weight: Weight) -> Weight:
    _WEIGHTS[weight.type.name] = weight
    return weight


@cache
def weights() -> dict[str, Weight]:
    """Every weight type by name: those that the modules of `ggml_cpu.quants` register."""
    import ggml_cpu.quants

    for module in pkgutil.iter_modules(ggml_cpu.quants.__path__):
        import_module(f"ggml_cpu.quants.{module.name}")
    return _WEIGHTS
