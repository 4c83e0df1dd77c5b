"""Attention of many tokens that overwrites its queries with the result.

This is safe in flash_tiles.py and in kernels with the same work units: a unit reads all its queries
before it writes its first row, and other units do not read them.
"""

from __future__ import annotations

from ggml_cpu.dense import build_steps
from ggml_cpu.fusion import fuse
from ggml_cpu.kernels.attention import flash_integers, flash_registers, flash_tiles
from ggml_cpu.step import Step
from ggml_cpu.table import table
from ggml_py.fusion.pattern import Match
from ggml_py.patterns.attention import ATTENTION, over_queries

IN_UNITS = {flash_tiles.__name__, flash_integers.__name__, flash_registers.__name__}


def in_units(m: Match) -> str:
    kernel = table().find(m["y"])
    many = kernel is not None and kernel.module in IN_UNITS
    return "" if many else f"needs many tokens; got {m['q']}"


def attention(m: Match) -> list[Step]:
    return build_steps(m["y"])


for _pattern in ATTENTION:
    fuse(_pattern, when=in_units, over=over_queries)(attention)
