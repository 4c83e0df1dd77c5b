"""Fusion patterns of a GLU with the matmul of its gate, or with the matmuls of both tensors."""

from __future__ import annotations

from ggml_py.fusion.pattern import Pattern

PRODUCTS = {"MUL_MAT": "weight, x", "MUL_MAT_ID": "weight, x, ids"}


def gate_product(product: str, op: str) -> Pattern:
    """Return the pattern of a matmul that gates `value` in the GLU `op`."""
    return Pattern(f"""
        gate = {product}({PRODUCTS[product]})
        y = {op}(gate, value)
    """)


def of_products(product: str, op: str) -> Pattern:
    """Return the pattern of a GLU of two matmuls with the same input."""
    sources = PRODUCTS[product]
    return Pattern(f"""
        gate = {product}({sources})
        value = {product}({sources.replace("weight", "other")})
        y = {op}(gate, value)
    """)
