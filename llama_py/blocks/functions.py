"""Named pieces of stride arithmetic, and constants as the C code computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ggml_py._moved import former_names
from ggml_py.ops import mul, reshape, view
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.tokens import InputAttnTemp


def inv_sqrt(n: int) -> float:
    """Return 1 / sqrt(n), computed in float32 like the C code."""
    return float(np.float32(1.0) / np.sqrt(np.float32(n)))


def heads(x: Tensor, size: int, n_head: int, *rest: int, offset: int = 0, step: int = 0) -> Tensor:
    """Split the rows of x into heads, as a view: [n, *rest] -> [size, n_head, *rest].

    offset  index of the first head's start; step  distance of heads, 0 for `size`
    """
    strides = [nb // x.nb[0] for nb in x.nb[1 : 1 + len(rest)]]
    return view(x, (size, n_head, *rest), (step or size, *strides), offset)


def split(x: Tensor, sizes: Sequence[int], n_dims: int = 2) -> list[Tensor]:
    """Split the rows of x into views of `sizes`: [sum(sizes), ...] -> [size, ...] each."""
    parts, offset = [], 0
    for size in sizes:
        parts.append(view(x, (size, *x.ne[1:n_dims]), offset=offset))
        offset += size
    return parts


def dense(ne: Sequence[int]) -> tuple[int, int, int]:
    """Return the strides, in elements, of a dense tensor of shape `ne`."""
    return (ne[0], ne[0] * ne[1], ne[0] * ne[1] * ne[2])


def tokens(x: Tensor, start: int, n: int) -> Tensor:
    """Return n tokens of x from token `start`, as a view: [., T, ...] -> [., n, ...]."""
    return view(x, (x.ne[0], n, *x.ne[2:]), offset=start * (x.nb[1] // x.nb[0]))


def times_by_head(x: Tensor, gate: Tensor) -> Tensor:
    """Multiply each head of x [d * n_head, n] by its gate [n_head, n]. -> like x"""
    n_head, n = gate.ne[:2]
    by_head = reshape(x, x.ne[0] // n_head, n_head, n)
    return reshape(mul(by_head, reshape(gate, 1, n_head, n)), *x.ne[:2])


def scale_by_position(
    g: GraphBuilder,
    q: Tensor,
    length: int,
    factor: float,
    offset: float = 0.0,
    by: type[InputAttnTemp] = InputAttnTemp,
) -> Tensor:
    """Scale queries [d, n_head, n_tokens] by position, by default in steps of `length`."""

    def make() -> InputAttnTemp:
        return g.add_input(by(length, factor, offset, g.n_tokens))

    return mul(q, g.shared("attn_temp", make).attn_scale)


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, tempered="scale_by_position")
