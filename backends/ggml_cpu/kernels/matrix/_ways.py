"""The ways to multiply weights of a type with many columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ggml_cpu.blocks import amx
from ggml_cpu.blocks.amx_pairs import MANY, in_pairs
from ggml_cpu.blocks.format import BLOCKS, LAYOUT, Weight
from ggml_cpu.kernel import Function, Kernel, fn
from ggml_cpu.kernels import _register_products
from ggml_cpu.kernels._map import no_params
from ggml_cpu.kernels._products import matrix_at, shape_of, tiles_product
from ggml_cpu.kernels._register_products import KEPT, register_product
from ggml_cpu.kernels.glu import gate_rows
from ggml_cpu.kernels.matrix import _gates
from ggml_cpu.target import AMX

_PRODUCTS: dict[tuple[str, str], Function] = {}
PANELS = "panels"  # the suffix of few columns
KERNELS: dict[tuple[str, str, str], Kernel] = {}  # by op, type of weight and suffix of the way
GATING: set[Kernel] = set()  # those of them whose product may be a gate


@dataclass(frozen=True)
class Way:
    """weight   as it is multiplied so
    in_place  whether it lies in rows, or in panels
    suffix    of the name of its kernels
    least     columns from which it is best
    """

    weight: Weight
    in_place: bool
    suffix: str
    least: int = 0

    @property
    def layout(self) -> str:
        return "" if self.in_place else LAYOUT

    @property
    def product(self) -> Function:
        """See _products.py:tiles_product; of panels, with a gate. The same for all that ask."""
        key = self.weight.type.name, self.suffix
        if key not in _PRODUCTS:
            _PRODUCTS[key] = self._product()
        return _PRODUCTS[key]

    def _product(self) -> Function:
        if self.weight.registers:
            return register_product(self.weight, None if self.in_place else gate_rows)
        product = tiles_product(self.weight, self.in_place)
        return product if self.in_place else _gates.gated_product(self.weight, product)

    def given(self, value: int) -> Function:
        """given(p): the further arguments of `product`; tensor `value` is what a gate is applied
        to."""
        return no_params if self.in_place else _gates.gate_of(value)

    @property
    def matrix(self) -> Function:
        """See _products.py:matrix_at."""
        return matrix_at(self.weight, self.in_place)

    @property
    def panels_of(self) -> Function:
        """panels_of(m): of a matrix of m rows."""
        return shape_of(self.weight).panels_of

    @property
    def group_of(self) -> Function:
        """group_of(k): panels of a product at most."""
        if not self.weight.registers:
            return shape_of(self.weight).group_of

        @fn
        def group_of(k):
            return KEPT

        return group_of

    def local_bytes(self, k: int) -> int:
        """Local scratch of a product."""
        if self.weight.registers:
            return _register_products.local_bytes(self.weight)
        if self.in_place:
            return shape_of(self.weight).local_bytes(k)
        return _gates.local_bytes(self.weight, k)

    @property
    def behind(self) -> int:
        """Bytes of shared scratch behind the columns."""
        return amx.BEHIND if self.weight.registers else 0

    def why_not(self, n: int) -> str:
        """Why not n columns; "" if it may be."""
        return "" if n >= self.least else f"needs {self.least} columns or more; got {n}"


def ways(weight: Weight) -> Iterator[Way]:
    """Ways to multiply; of several that take a node, the last is best. The way of few columns in
    panels comes first."""
    if weight.repacked:  # whole panels are there: none is made of a part of a row
        yield Way(replace(weight, k_block=BLOCKS), False, PANELS)
    yield Way(weight, True, "tiles")
    if AMX and weight.values is not None:
        yield Way(in_pairs(weight), True, "pairs", MANY)
        if weight.repacked:
            yield Way(in_pairs(weight, panels=True), False, "panel_pairs", MANY)


def declare(op: str, weight: Weight, make: Callable[[Way], Kernel]) -> None:
    """Make the kernels of all ways."""
    for way in ways(weight):
        KERNELS[op, weight.type.name, way.suffix] = kernel = make(way)
        if not way.in_place:
            GATING.add(kernel)
