"""The experts that a router has chosen, as a step of a program reads them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_cpu.executor import Executor
from ggml_cpu.experts.cache import CacheUse, ScatteredBuffer, uses_most
from ggml_cpu.experts.forecast import MOST, Forecast
from ggml_cpu.experts.layer import CachedLayer
from ggml_cpu.experts.policies import farthest_layer
from ggml_cpu.layout import StepLayout
from ggml_cpu.params import NB, NE, TENSOR_WORDS, TENSORS
from ggml_cpu.step import Step
from ggml_py.types import F32

LATER = -1.5  # score of `farthest_layer` for experts that are used after the next layer
STATES, IDS = 2, 3  # operands of MUL_MAT_ID


class ExpertDemand:
    """The ids that a step will read, i32 [n_tokens, n_used], and the cache of their experts.

    states  input of the layer, f32 [n_tokens, n_embd]; None: the next layer has no forecast
    """

    def __init__(self, step: Step, layout: StepLayout, row: int, executor: Executor) -> None:
        """row: of the step's parameter block in the layout"""
        buffer = _find_table(step)
        assert buffer is not None
        self.cache, self.layer = buffer.cache, buffer.layer
        self.first = int(step.node.param("first"))
        self._executor = executor
        self._ids: npt.NDArray[np.int32] = _operand(layout, row, IDS, np.int32)[0]
        self.states: npt.NDArray[np.float32] | None = None
        self._forecast: Forecast | None = None
        source = step.node.source(STATES - 1)
        if source.type is F32 and len(self._ids) <= MOST:
            self.states = _operand(layout, row, STATES, np.float32)[:, 0]

    def ensure(self, use: CacheUse) -> None:
        """Start loading the experts that the next layer will probably use, and return when the
        chosen experts are cached. `use` holds them."""
        experts = np.unique(self._ids).astype(np.int64) - self.first
        experts = experts[(experts >= 0) & (experts < self.layer.n_experts)]  # others are reported
        pending = self.cache.begin(use, self.layer, experts, len(self._ids))
        following = self.cache.next_layer(self.layer)
        if uses_most(self.layer, experts):
            following.forecast, all_experts = None, np.arange(following.n_experts)
            self.cache.load_ahead(following, all_experts, farthest_layer, LATER)
        elif self.cache.foresees(following) and following.number > self.layer.number:
            self._load_forecast(following)
        if pending:
            self.cache.wait(pending)

    def _load_forecast(self, following: CachedLayer) -> None:
        router, states = following.router, self.states
        if router is None or states is None or router.ne[0] != states.shape[1]:
            return
        if self._forecast is None:
            self._forecast = Forecast(router, len(states), self._executor)
        following.forecast = self._forecast(states, self._ids.shape[1])
        self.cache.load_ahead(following, following.forecast, self.cache.policy)


def choice_key(step: Step) -> tuple[int, int] | None:
    """Return a key of the experts and ids that a step reads; None if it reads no cached experts."""
    buffer = _find_table(step)
    return None if buffer is None else (id(buffer.layer), id(step.operands[IDS]))


def _operand(layout: StepLayout, row: int, i: int, dtype: type[Any]) -> npt.NDArray[Any]:
    """Return the values of operand i of a step, [ne2, ne1, ne0]."""
    words = layout.blocks[row, TENSORS + TENSOR_WORDS * i :].tolist()
    ne, nb = words[NE : NE + 3], words[NB : NB + 3]
    nbytes = 4 + sum((n - 1) * stride for n, stride in zip(ne, nb, strict=True))
    memory = (ctypes.c_uint8 * nbytes).from_address(words[0])
    return np.ndarray(ne[::-1], dtype, memory, strides=nb[::-1])


def _find_table(step: Step) -> ScatteredBuffer | None:
    weight = step.operands[1] if len(step.operands) > IDS else None
    buffer = None if weight is None else weight.buffer
    return buffer if isinstance(buffer, ScatteredBuffer) else None
