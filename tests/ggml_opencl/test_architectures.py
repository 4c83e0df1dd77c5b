"""Every architecture's tiny live model on OpenCL devices against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggml_py.backend import Device
from ggml_py.backend.registry import device as find_device
from llama_py.context import Context
from llama_py.weights.placement import Placement, overrides
from tests.ggml_opencl.test_golden import FROM_ZERO
from tests.support.graph_models import CONTINUING, operations, with_something_new
from tests.support.live_models import Arrays, live, made, model_of, nmse, tokens
from tests.support.splits import count_splits

SIZES = {"n_ctx": 256, "n_ubatch": 16}
# As in llama.cpp, caches and norms of a later turn are on other devices than the layer's weights.
TURNS = ["nanbeige-loops"]
NEW = with_something_new(CONTINUING, operations)


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
def test_logits(name: str, device: Any, again: Any) -> None:
    """Every model on two devices; those with an operation that no model before them has, however
    they are split. Models that test_golden.py runs on one device are not run on one here.
    """
    cpu = find_device("cpu")
    pair: tuple[Device, ...] = (device, cpu)
    expected, weights = run(Context(live(name), **SIZES)).astype(np.float64), made(name)
    places = [Placement((device, again, cpu), tensor_split=(1, 1))]
    if name in NEW:
        places += [Placement(pair), Placement(pair, 1)]
        if any("exps" in key for key in weights[1]):
            places.append(Placement(pair, -1, overrides({"exps": "cpu"}, 0, pair)))
    if name not in FROM_ZERO:
        places.append(Placement((device,)))
    for where in places:
        assert nmse(expected, split(name, weights, where)) <= 1e-5, where
