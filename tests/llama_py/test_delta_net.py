"""The forms of the gated delta net compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py.ops import cont
from llama_py.blocks.delta_net import DELTA_NET, Delta, build_delta_net
from llama_py.hparams.variants import SLOTS
from tests.support import blocks
from tests.support.graph_models import load, run
from tests.support.live_models import nmse

UNFUSED = [form for form in DELTA_NET.names if form not in ("fused", SLOTS)]
S, H, B = 16, 2, 2  # size of a head, heads, sequences


Inputs = dict[str, NDArray[np.float32]]


def inputs(n_tokens: int, per_channel: bool, gate: tuple[float, float], seed: int = 1) -> Inputs:
    """Normed queries and keys, log decays uniform in `gate`."""
    rng = np.random.default_rng(seed)
    q, k, v = rng.standard_normal((3, B, n_tokens, H, S))
    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    g = rng.uniform(*gate, (B, n_tokens, H, S if per_channel else 1))
    b = rng.uniform(0, 1, (B, n_tokens, H, 1))
    s = rng.standard_normal((B, H, S, S))
    values = {"q": q, "k": k, "v": v, "g": g, "b": b, "s": s}
    return {name: x.astype(np.float32) for name, x in values.items()}


def compute(form: str, values: Inputs) -> NDArray[np.float32]:
    """Outputs and the new state, one after the other."""
    g = blocks.builder(form=lambda kind: form)
    inputs = [(blocks.given(name, x), x) for name, x in values.items()]
    *parts, state = (t for t, _ in inputs)
    results = [cont(t) for t in build_delta_net(g, Delta(*parts), state, il=0)]
    return np.concatenate([x.ravel() for x in blocks.run(g.gf, inputs, *results)])


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("n_tokens", [1, 2, 15, 16, 17, 63, 64, 65, 150])
def test_all_forms_are_the_delta_rule(n_tokens: int, per_channel: bool) -> None:
    values = inputs(n_tokens, per_channel, (-0.5, -1e-4))
    expected = compute("fused", values)
    for form in UNFUSED:
        assert nmse(expected, compute(form, values)) <= 1e-9, form


@pytest.mark.parametrize("form", UNFUSED)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("gate", [(-20.0, -1e-4), (-100.0, -90.0)])
def test_gates_that_close_do_not_overflow(
    form: str, per_channel: bool, gate: tuple[float, float]
) -> None:
    values = inputs(130, per_channel, gate)
    found = compute(form, values)
    assert np.isfinite(found).all()
    assert nmse(compute("fused", values), found) <= 1e-9


def biggest(name: str, form: Any) -> int:
    return max(t.nbytes for t in run(load(name), 64, delta_net=form)[0].graph.nodes)


def test_blocks_keep_the_masks_of_channels_small() -> None:
    """[16, 16, S] for each block on the diagonal, not [64, 64, S]; and no more in all than chunks
    of 16 need."""
    assert biggest("kimi-linear-moe", "blocks") == biggest("kimi-linear-moe", "chunked")


def test_blocks_are_put_together_by_set() -> None:
    ops = [t.op for t in run(load("kimi-linear-moe"), 64, delta_net="blocks")[0].graph.nodes]
    # In two layers: diagonal and below, of two scores; the output.
    assert ops.count("SET") == 2 * (2 * (3 + 6) + 1)


@pytest.mark.parametrize("form", UNFUSED)
def test_forms_do_without_the_fused_op(form: Any) -> None:
    graphs = run(load("qwen35moe-moe"), 19, delta_net=form)
    assert "GATED_DELTA_NET" not in {t.op for result in graphs for t in result.graph.nodes}
