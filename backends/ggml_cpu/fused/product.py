"""A product of many columns, which are all prepared in scratch before the first of its results is
written: it may lie over them where nobody needs them later."""

from __future__ import annotations

from ggml_cpu.dense import build_steps
from ggml_cpu.fusion import fuse
from ggml_cpu.step import Step
from ggml_cpu.table import table
from ggml_py.fusion.pattern import Match, Pattern
from ggml_py.patterns.glu import PRODUCTS
from ggml_py.tensor import Tensor

OPERAND = 2  # of a product's kernel: its columns
MANY = 1 << 16  # elements: not each thread prepares them for itself, if that is run often


def is_prepared(product: Tensor) -> bool:
    """Return True if the product has many columns, which are prepared."""
    if product.source(1).n_elements < MANY:
        return False
    kernel = table().find(product)
    first = kernel.prepare if kernel is not None else ()
    return bool(first) and all(OPERAND in (k.reads or ()) for k in first)


for _op, _sources in PRODUCTS.items():

    @fuse(Pattern(f"y = {_op}({_sources})"), first=is_prepared, spent=lambda m: (m["x"],))
    def product(m: Match) -> list[Step]:
        return build_steps(m["y"])
