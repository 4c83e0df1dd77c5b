"""Functions of a type: conversion of rows to f32 and back, and matrix multiplication of weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ggml_cpu.blocks.activations import Activations
from ggml_cpu.kernel import Function
from ggml_cpu.target import LANES
from ggml_py.types import GGMLType

LAYOUT = f"x{LANES}"  # the repacked layout: panels of LANES rows
BLOCKS = 1 << 40  # a `k_block` larger than any row
FEW = 4  # largest batch that uses rows in place if `dot` multiplies each column separately


@dataclass(frozen=True, kw_only=True)
class Format:
    """Conversion of rows in ggml's layout. All functions are `@fn` and take whole blocks.

    dequantize   dequantize(src, n, dst): convert n elements to f32; None for the float types
    quantize     quantize(src, n, dst): convert f32 to blocks, rounded like
                 ggml-quants.c:quantize_row_*_ref; None if no op writes the type
    vector       vector(block, i): LANES values of a block as f32, from value i on; None if
                 dequantizing rows is as fast
    """

    type: GGMLType
    dequantize: Function | None = None
    quantize: Function | None = None
    vector: Function | None = None


@dataclass(frozen=True, kw_only=True)
class Weight(Format):
    """A weight type, with functions that multiply rows in ggml's layout ("in place") or panels.

    A panel has `rows` rows, split along k into steps of `step` elements, in the order `tile` reads.

    activations   format of the other operand; one of its blocks is a step, which may be a part of a
                  weight block
    panel         panel(steps): bytes of a panel of `steps` steps
    unpack        unpack(src, stride, rows, n, dst): pack up to `rows` rows of n elements to a panel
    tile          tile(width) -> multiply(panel, columns, steps, out): `out` f32 [width][rows]
    dot           dot(src, stride, rows, column, n, out): multiply up to `dot_rows` rows in place by
                  one column, into `out` f32 [rows]
    dots          dots(src, stride, rows, column, apart, columns, n, out): multiply them by up to
                  `dot_columns` columns, `apart` bytes apart, into `out` f32
                  [dot_columns][dot_rows]; None if `dot` is as fast
    row           row(panel, r, n, dst): restore row r of a panel in ggml's layout; None if panels
                  cannot restore it, or if weights are not repacked at load
    rounded       True if weights are repacked at load although panels have rounded values, so that
                  `row` is None
    values        values(put, size) -> walk(panel, n, to): call put(bytes, scale, offset, to) for
                  four elements of each row at a time; `to` advances by `size`. An element is byte *
                  scale + offset, f32 [LANES]; bytes are the operand of this CPU's dot product with
                  signed bytes. None for floats
    together      number of steps that `unpack` requires as a unit, at least a weight block
    k_block       maximum number of steps to unpack and multiply at a time, in whole blocks
    of_dots       activations of `dot` and `dots`, if not `activations`
    few           largest batch for which `dot` or `dots` is faster than packing rows to panels
    registers     True if panels are multiplied with AMX tile registers (amx.py) instead of `tile`
    of_panels     a repacked weight whose panels are the source of `unpack`, `stride` bytes apart;
                  None: rows in place
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
    def is_repacked(self) -> bool:
        return self.row is not None or self.rounded


REGISTERED: dict[str, Format] = {}


def register(format: Format) -> None:
    REGISTERED[format.type.name] = format
