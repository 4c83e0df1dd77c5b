"""Every architecture's tiny live model on OpenCL devices against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggml_py.backend import Device
from ggml_py.backend.registry import device as find_device
from llama_py.context import Context
from llama_py.weights.placement import Placement, overrides
from tests.support.graph_models import CONTINUING
from tests.support.live_models import Arrays, live, made, model_of, nmse, tokens
from tests.support.splits import count_splits

SIZES = {"n_ctx": 256, "n_ubatch": 16}
# As in llama.cpp, caches and norms of a later turn are on other devices than the layer's weights.
TURNS = ["nanbeige-loops"]


def run(ctx: Context) -> np.ndarray:
    """Logits of three ubatches and of a step after them."""
    ids = tokens(41)
    return np.concatenate([ctx.decode(ids[:40], logits="all"), ctx.decode(ids[40:])])


def split(name: str, weights: tuple[dict[str, Any], Arrays], where: Placement) -> np.ndarray:
    """With one device only, a node that it refuses raises."""
    ctx = Context(model_of(*weights, where), **SIZES)

    def count(res: Any, _: Any) -> None:
        n = ctx.runner.graphs[0][1].n_splits
        assert n == count_splits(res.graph, ctx.devices) or name in TURNS
        assert (n > 1) == (len(ctx.devices) > 1)

    ctx.on_graph = count
    return run(ctx)


@pytest.mark.parametrize("name", CONTINUING)
def test_logits(name: str, device: Any) -> None:
    cpu = find_device("cpu")
    pair: tuple[Device, ...] = (device, cpu)
    experts = overrides({"exps": "cpu"}, 0, pair)
    twice = (device, device.reopen("opencl0.2"), cpu)
    expected, weights = run(Context(live(name), **SIZES)).astype(np.float64), made(name)
    for where in (
        Placement((device,)),
        Placement(pair),
        Placement(pair, 1),
        Placement(pair, -1, experts),
        Placement(twice, tensor_split=(1, 1)),
    ):
        assert nmse(expected, split(name, weights, where)) <= 1e-5, where
