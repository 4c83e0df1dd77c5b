"""Matmul of many columns that may overwrite its columns.

All columns are packed in scratch before the first result is written, so the result may overwrite
columns that no later node reads.
"""

from __future__ import annotations

from ggml_cpu.dense import build_steps
from ggml_cpu.fusion import fuse
from ggml_cpu.step import Step
from ggml_cpu.table import table
from ggml_py.fusion.pattern import Match, Pattern
from ggml_py.patterns.glu import PRODUCTS
from ggml_py.tensor import Tensor

OPERAND = 2  # operand index of the columns in a matmul kernel
MANY = 1 << 16  # minimum elements; each thread may pack fewer for itself (private.py)


def is_prepared(product: Tensor) -> bool:
    """Return True if the matmul has many columns and packs them in a separate kernel."""
    if product.source(1).n_elements < MANY:
        return False
    kernel = table().find(product)
    first = kernel.prepare if kernel is not None else ()
    return bool(first) and all(OPERAND in (k.reads or ()) for k in first)


for _op, _sources in PRODUCTS.items():

    @fuse(Pattern(f"y = {_op}({_sources})"), first=is_prepared, spent=lambda m: (m["x"],))
    def product(m: Match) -> list[Step]:
        return build_steps(m["y"])
