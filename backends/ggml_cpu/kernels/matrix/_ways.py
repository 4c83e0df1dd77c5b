"""Variants of the multiplication of a weight type by many columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ggml_cpu.blocks import amx
from ggml_cpu.blocks.amx_pairs import MANY, in_pairs
from ggml_cpu.blocks.format import BLOCKS, LAYOUT, Weight
from ggml_cpu.kernel import Function, Kernel, fn
from ggml_cpu.kernels import _register_products
from ggml_cpu.kernels._map import no_params
from ggml_cpu.kernels._products import build_matrix_address, get_shape, tiles_product
from ggml_cpu.kernels._register_products import KEPT, register_product
from ggml_cpu.kernels.glu import gate_rows
from ggml_cpu.kernels.matrix import _gates
from ggml_cpu.target import AMX

_PRODUCTS: dict[tuple[str, str], Function] = {}
PANELS = "panels"  # suffix of the panel variant for few columns
KERNELS: dict[tuple[str, str, str], Kernel] = {}  # by op, weight type and suffix
GATING: set[Kernel] = set()  # kernels that can apply a GLU (_gates.py)


@dataclass(frozen=True)
class Way:
    """A variant of the multiplication of a weight type by many columns.

    Attributes:
        weight: Weight type as this variant multiplies it.
        in_place: True if the weights are stored in rows, False if in panels.
        suffix: Suffix of kernel names.
        least: Minimum number of columns; the variant is slower for fewer.
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
        """Matmul function, cached: see _products.py:tiles_product; of panels, with a GLU."""
        key = self.weight.type.name, self.suffix
        if key not in _PRODUCTS:
            _PRODUCTS[key] = self._product()
        return _PRODUCTS[key]

    def _product(self) -> Function:
        if self.weight.registers:
            return register_product(self.weight, None if self.in_place else gate_rows)
        product = tiles_product(self.weight, self.in_place)
        return product if self.in_place else _gates.gated_product(self.weight, product)

    def gate_params(self, value: int) -> Function:
        """Return gate_params(p): extra arguments of `product`; value: index of the GLU's values."""
        return no_params if self.in_place else _gates.build_gate_params(value)

    @property
    def matrix(self) -> Function:
        """Function that returns the address of a matrix: see _products.py:build_matrix_address."""
        return build_matrix_address(self.weight, self.in_place)

    @property
    def count_panels(self) -> Function:
        """count_panels(m): number of panels in a matrix of m rows."""
        return get_shape(self.weight).count_panels

    @property
    def panels_per_group(self) -> Function:
        """panels_per_group(k): maximum number of panels per call of `product`."""
        if not self.weight.registers:
            return get_shape(self.weight).panels_per_group

        @fn
        def panels_per_group(k):
            return KEPT

        return panels_per_group

    def local_bytes(self, k: int) -> int:
        """Return the bytes of local scratch of `product`."""
        if self.weight.registers:
            return _register_products.local_bytes(self.weight)
        if self.in_place:
            return get_shape(self.weight).local_bytes(k)
        return _gates.local_bytes(self.weight, k)

    @property
    def reserved_bytes(self) -> int:
        """Bytes of shared scratch to reserve after the columns."""
        return amx.BEHIND if self.weight.registers else 0

    def why_not(self, n: int) -> str:
        """Return the reason why this variant rejects n columns, or ""."""
        return "" if n >= self.least else f"needs {self.least} columns or more; got {n}"


def ways(weight: Weight) -> Iterator[Way]:
    """Yield the variants of a weight type; the last that accepts a node is the fastest.

    The panel variant for few columns is the first.
    """
    if weight.is_repacked:  # panels need no unpacking, so k is not divided
        yield Way(replace(weight, k_block=BLOCKS), False, PANELS)
    yield Way(weight, True, "tiles")
    if AMX and weight.values is not None:
        yield Way(in_pairs(weight), True, "pairs", MANY)
        if weight.is_repacked:
            yield Way(in_pairs(weight, panels=True), False, "panel_pairs", MANY)


def declare(op: str, weight: Weight, make: Callable[[Way], Kernel]) -> None:
    """Create the kernels of all variants and add them to KERNELS."""
    for way in ways(weight):
        KERNELS[op, weight.type.name, way.suffix] = kernel = make(way)
        if not way.in_place:
            GATING.add(kernel)
