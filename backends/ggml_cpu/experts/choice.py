"""The experts that a router has chosen, as a step of a program reads them."""

from __future__ import annotations

import ctypes

import numpy as np

from ggml_cpu.experts.cache import CacheUse, ScatteredBuffer
from ggml_cpu.layout import StepLayout
from ggml_cpu.params import NB, NE, TENSOR_WORDS, TENSORS
from ggml_cpu.step import Step

IDS = 3  # operand of MUL_MAT_ID


class Choice:
    """The ids that a step will read, i32 [n_used, n_tokens], and the cache of their experts."""

    def __init__(self, step: Step, layout: StepLayout, row: int) -> None:
        """row: of the step's parameter block in the layout"""
        buffer = _scattered(step)
        assert buffer is not None
        self.cache, self.layer = buffer.cache, buffer.layer
        self.first = int(step.node.param("first"))
        words = layout.blocks[row, TENSORS + TENSOR_WORDS * IDS :].tolist()
        ne, nb = words[NE : NE + 2], words[NB : NB + 2]
        nbytes = 4 + sum((n - 1) * stride for n, stride in zip(ne, nb, strict=True))
        memory = (ctypes.c_uint8 * nbytes).from_address(words[0])
        self._ids = np.ndarray(ne[::-1], np.int32, memory, strides=nb[::-1])

    def ensure(self, use: CacheUse) -> None:
        """Return when the chosen experts are cached, and stay so while `use` holds them."""
        experts = np.unique(self._ids) - self.first
        here = (experts >= 0) & (experts < self.layer.n_experts)  # a kernel reports other ids
        self.cache.ensure(use, self.layer, experts[here])


def choice_key(step: Step) -> tuple[int, int] | None:
    """Return a key of the experts and ids that a step reads; None if it reads no cached experts."""
    buffer = _scattered(step)
    return None if buffer is None else (id(buffer.layer), id(step.operands[IDS]))


def _scattered(step: Step) -> ScatteredBuffer | None:
    weight = step.operands[1] if len(step.operands) > IDS else None
    buffer = None if weight is None else weight.buffer
    return buffer if isinstance(buffer, ScatteredBuffer) else None
