"""Blocks of graphs by themselves: a builder for them, their weights, and what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggml_py.backend import get_tensor, set_tensor
from ggml_py.backend.registry import device
from ggml_py.graph import Graph
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor
from ggml_py.types import F32
from llama_py.adapters.lora import NO_LORAS
from llama_py.weights import Weights
from tests.support.live_models import info_of

Values = NDArray[Any]


def builder(**more: Any) -> Any:
    """A GraphBuilder without a model; nothing gets a name."""
    graph = Graph()
    return SimpleNamespace(
        gf=graph,
        expand=graph.build_forward_expand,
        cb=lambda t, name, il=-1: t,
        mark_fused=lambda kind, t: t,
        rotate=lambda weight, x: x,
        params=SimpleNamespace(loras=NO_LORAS),
        **more,
    )


def weights(arrays: Mapping[str, Values]) -> Weights:
    """A file of these tensors; arrays have ggml's shapes reversed."""
    infos = {name: info_of(name, x.astype(np.float32)) for name, x in arrays.items()}
    return Weights(infos, "block.gguf")


def given(name: str, values: Values) -> Tensor:
    """An input of the shape of values."""
    t = Tensor(F32, values.shape[::-1], name=name)
    t.flags |= FLAG_INPUT
    return t


def run(graph: Graph, inputs: list[tuple[Tensor, Values]], *results: Tensor) -> list[Values]:
    """What results are, computed by the reference."""
    for t in results:
        t.flags |= FLAG_OUTPUT
        graph.build_forward_expand(t)
    for t, _ in inputs:
        graph.build_forward_expand(t)
    plan = Scheduler([device("ref")]).plan(graph)
    for t, values in inputs:
        set_tensor(t, values.astype(np.float32))
    plan.run()
    return [get_tensor(t) for t in results]
