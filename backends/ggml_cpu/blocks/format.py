"""Functions of a type: its rows to f32 and back; for a type of weights, products as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ggml_cpu.blocks.activations import Activations
from ggml_cpu.kernel import Function
from ggml_cpu.target import LANES
from ggml_py.types import GGMLType

LAYOUT = f"x{LANES}"  # the repacked layout: panels of LANES rows
BLOCKS = 1 << 40  # a `k_block` that no row reaches
FEW = 4  # columns, each multiplied alone


@dataclass(frozen=True, kw_only=True)
class Format:
    """A type as rows in ggml's own bytes. All functions are `@fn` and take whole blocks.

    dequantize   dequantize(src, n, dst): n elements to f32; None for the float types
    quantize     quantize(src, n, dst): f32 to blocks, as ggml-quants.c:quantize_row_*_ref rounds;
                 None where no op makes blocks of the type
    vector       vector(block, i): LANES values from value i of a block on, f32; None where it is as
                 good to dequantize rows
    """

    type: GGMLType
    dequantize: Function | None = None
    quantize: Function | None = None
    vector: Function | None = None


@dataclass(frozen=True, kw_only=True)
class Weight(Format):
    """A type of weights. Rows lie in ggml's own blocks ("in place") or in panels.

    A panel is `rows` rows, cut along k into steps of `step` elements, in the order in which `tile`
    reads them.

    activations   what the other operand is rounded to, and how it is packed; its block is a step,
                  which may be a part of a block of weights
    panel         panel(steps): bytes of a panel of so many steps
    unpack        unpack(src, stride, rows, n, dst): panel of up to `rows` rows of n elements
    tile          tile(width) -> multiply(panel, columns, steps, out): `out` f32 [width][rows]
    dot           dot(src, stride, rows, column, n, out): up to `dot_rows` rows in place times one
                  column, into `out` f32 [rows]
    dots          dots(src, stride, rows, column, apart, columns, n, out): the same with up to
                  `dot_columns` columns, `apart` bytes from one to the next, into `out` f32
                  [dot_columns][dot_rows]; None where `dot` is as good
    row           row(panel, r, n, dst): row r of a panel back in place; None where it is not there
                  as it was, or weights are not worth repacking at load
    rounded       whether they are worth it, though panels have their values rounded, not `row`
    values        values(put, size) -> walk(panel, n, to): what a panel of n elements has, to
                  put(bytes, scale, offset, to), four of each row at a time and `size` bytes after
                  the four before; values are bytes, as this CPU multiplies them with signed ones,
                  times scale + offset, f32 [LANES]. None for floats
    together      steps that are unpacked together, besides those of a block of weights
    k_block       steps of a panel to unpack and multiply at a time at most, in whole blocks
    of_dots       what `dot` and `dots` take, where that is not `activations`
    few           columns up to which `dots` costs less than turning rows into panels
    registers     whether panels are multiplied by registers of the CPU (amx.py), not by `tile`
    of_panels     a repacked weight whose panels `unpack` takes, `stride` bytes apart; None: rows in
                  place
    """

    activations: Activations
    rows: int
    panel: Callable[[int], int]
    unpack: Function
    tile: Callable[[int], Function]
    dot: Function
    dot_rows: int = 1
    dots: Function | None = None
    dot_columns: int = 1
    row: Function | None = None
    rounded: bool = False
    values: Callable[[Function, int], Function] | None = None
    together: int = 1
    k_block: int = BLOCKS
    of_dots: Activations | None = None
    few: int = FEW
    registers: bool = False
    of_panels: Weight | None = None

    @property
    def dot_activations(self) -> Activations:
        return self.of_dots or self.activations

    @property
    def step(self) -> int:
        return self.activations.elements

    @property
    def repacked(self) -> bool:
        return self.row is not None or self.rounded


REGISTERED: dict[str, Format] = {}


def register(format: Format) -> None:
    REGISTERED[format.type.name] = format
