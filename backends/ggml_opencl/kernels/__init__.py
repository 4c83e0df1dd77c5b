"""Source of the kernels: one .cl file per family or quantization type; all use _common.cl.

A codebook of `ggml_py.grids` replaces a line GRID(name). The file of that name replaces a line
PART(name), once per program; several families share it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from ggml_py.grids import grid

_HERE: Traversable = files(__name__)
_GRID = re.compile(r"^GRID\((\w+)\)$", re.M)
_PART = re.compile(r"^PART\(([\w/]+)\)$", re.M)
_INTEGERS = {4: "uint", 8: "ulong"}


@cache
def quantized_types() -> frozenset[str]:
    """Return names of the quantized types that have a file: kernels can read their groups of 32."""
    names = (entry.name for entry in (_HERE / "quants").iterdir())
    return frozenset(name.removesuffix(".cl") for name in names if name.endswith(".cl"))


@cache
def find_types(function: str) -> tuple[str, ...]:
    """Return the types whose file has this function: `element`, which reads one value, or
    `quantize`, which writes a block."""

    def has(name: str) -> bool:
        return f" {function}_{name}(" in (_HERE / "quants" / f"{name}.cl").read_text("utf-8")

    return tuple(filter(has, sorted(quantized_types())))


@cache
def source(family: str, types: tuple[str, ...], macros: str = "") -> str:
    """Return a family's program text, with quantized types of `types` and macro lines."""
    quants = sorted(quantized_types() & set(types))
    parts = ["_common.cl", *(f"quants/{name}.cl" for name in quants), f"{family}.cl"]
    text = macros + "\n".join((_HERE / part).read_text("utf-8") for part in parts)
    return _GRID.sub(lambda line: constants(line[1]), with_parts(text, set()))


def with_parts(text: str, known: set[str]) -> str:
    """Return a text with all parts that it names, directly or indirectly, except `known` parts."""

    def part(line: re.Match[str]) -> str:
        if line[1] in known:
            return ""
        known.add(line[1])
        return with_parts((_HERE / f"{line[1]}.cl").read_text("utf-8"), known)

    return _PART.sub(part, text)


def constants(name: str) -> str:
    """Return a codebook as `grid_name`, points as integers, lowest byte first."""
    points = grid(name)
    length = points.shape[1]
    numbers = ", ".join(map(hex, points.view(f"<u{length}").ravel()))
    table = f"constant {_INTEGERS[length]} grid_{name}[] = {{{numbers}}};"
    return f"#ifndef GRID_{name}\n#define GRID_{name}\n{table}\n#endif"
