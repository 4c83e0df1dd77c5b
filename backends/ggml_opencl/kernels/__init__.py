"""The kernels' source: one .cl file a family, one a quantization type, and what all of them use."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_HERE: Traversable = files(__name__)


@cache
def quantized_types() -> frozenset[str]:
    """Names of the quantized types that have a file: kernels can read their groups of 32 values."""
    names = (entry.name for entry in (_HERE / "quants").iterdir())
    return frozenset(name.removesuffix(".cl") for name in names if name.endswith(".cl"))


@cache
def types_with(function: str) -> tuple[str, ...]:
    """Those of them whose file has this function: `element`, which reads one value, or `quantize`,
    which makes a block of 32.
    """

    def has(name: str) -> bool:
        return f" {function}_{name}(" in (_HERE / "quants" / f"{name}.cl").read_text("utf-8")

    return tuple(filter(has, sorted(quantized_types())))


@cache
def source(family: str, types: tuple[str, ...]) -> str:
    """A family's program text, with the quantized types among `types`."""
    quants = sorted(quantized_types() & set(types))
    parts = ["common.cl", *(f"quants/{name}.cl" for name in quants), f"{family}.cl"]
    return "\n".join((_HERE / part).read_text("utf-8") for part in parts)
