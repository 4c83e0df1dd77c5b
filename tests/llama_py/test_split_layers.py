"""Devices that share layers of the less usual kinds: what files may have otherwise, and what these
layers keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggml_py.backend import get_tensor
from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.loading.split.block import SplitBlock
from llama_py.loading.split.walk import collect_values
from tests.support.live_models import (
    Arrays,
    Change,
    live,
    made,
    model_of,
    nmse,
    random,
    take,
    unsplit,
)
from tests.support.split_models import (
    EXACT,
    HEADS,
    IDS,
    KEYS,
    cached,
    kinds_of,
    placed,
    run,
    shared,
    whole,
)

CLOSE = 1e-10


def joined(metadata: dict[str, Any], arrays: Arrays) -> None:
    """Queries, keys and values of a delta net in one matrix, with a bias; weights of convolutions
    without the dimension of one."""
    for p in ("blk.0", "blk.2"):
        parts = [take(arrays, f"{p}.attn_{part}") for part in "qkv"]
        arrays[f"{p}.attn_qkv.weight"] = np.concatenate(parts, axis=-2)
        arrays[f"{p}.attn_qkv.bias"] = random(3 * parts[0].shape[-2], 1).reshape(-1)
        for part in "qkv":
            name = f"{p}.ssm_conv1d_{part}.weight"
            arrays[name] = arrays[name].reshape(-1, arrays[name].shape[-1])


@pytest.mark.parametrize(
    ("name", "change"),
    [("kimi-linear-moe", unsplit), ("kimi-linear-moe", joined), ("deepseek2-moe", unsplit)],
)
def test_weights_in_other_forms(name: str, change: Change) -> None:
    arrays = made(name, **KEYS[name])
    change(*arrays)
    one, three = model_of(*arrays, "cpu"), model_of(*arrays, placed((2, 1, 1)))
    assert nmse(run(one), run(three)) <= CLOSE
    assert kinds_of(three) == {"Norm", "SplitBlock"}


def test_devices_have_the_same_latent_vectors() -> None:
    ctx = Context(cached("deepseek2-moe", (1, 1, 1)), **EXACT)
    ctx.decode(IDS[:20])
    (kv,) = ctx.memory.caches.values()
    first, *others = (get_tensor(kv.tensors.k[1, part])[0, 0, :20] for part in range(3))
    assert first.shape == (20, 48)
    assert np.abs(first).min(axis=1).all()
    for other in others:
        assert nmse(first, other) <= CLOSE


def test_inputs_of_the_token_before_stay_together() -> None:
    """Of a time mix devices have some heads' states each; what was shifted, the main one."""
    recr = Context(cached("rwkv6-fused", (1, 1, 1)), **EXACT).memory.recr
    assert recr is not None
    found = [(x.key, x.state.n_embd_r, x.state.n_embd_s) for x in recr.layers if x.il == 1]
    assert found == [(1, 128, 0), ((1, 0), 0, 512), ((1, 1), 0, 256), ((1, 2), 0, 256)]


@pytest.mark.parametrize(
    ("name", "of_layers"),
    [
        ("stablelm-parallel", (1, 2)),
        ("gptneox-parallel", (1, 2)),
        ("stablelm-serial", (2, 2)),
        ("falcon-h1-dense", (2, 2)),
    ],
)
def test_blocks_side_by_side_have_one_sum(name: str, of_layers: tuple[int, ...]) -> None:
    """But in the last layer, where rows are selected between them."""
    arrays = made(name)
    three = model_of(*arrays, placed((1, 1)))
    ctx = Context(three, **EXACT)
    ctx.decode(IDS[:8])
    nodes = ctx.runner.graphs[0][0].graph.nodes
    assert sum(t.op == "REDUCE" for t in nodes) == sum(of_layers)
    assert nmse(run(model_of(*arrays, "cpu")), run(three)) <= CLOSE


@pytest.mark.parametrize("name", ["kimi-linear-moe", "lfm2-dense", "rwkv6-fused"])
def test_drafts_are_taken_back(name: str) -> None:
    """A few tokens are computed, all but the first of them rejected, and others come."""
    found = []
    for model in (whole(name), cached(name, (1, 1, 1))):
        ctx = Context(model, **EXACT, n_rs_seq=4)
        ctx.decode(IDS[:20])
        ctx.decode(IDS[20:25], logits="all")
        assert ctx.memory.seq_rm(0, 21)
        found.append(ctx.decode(IDS[30:33], logits="all"))
    assert nmse(*found) <= CLOSE
    fresh = Context(whole(name), **EXACT)
    fresh.decode(IDS[:21])
    assert nmse(fresh.decode(IDS[30:33], logits="all"), found[1]) <= CLOSE


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("name", ["t5-dense", "t5-gated"])
def test_a_text_is_read_and_another_written(name: str, n: int) -> None:
    """Heads of both stacks are shared; the scores of distances, by head, too."""
    model, found = shared(name, (1,) * n), []
    blocks = [type(x) for x in collect_values(model.architecture)]
    assert blocks.count(SplitBlock) == 3 * 2 + 2 * 3  # layers of both stacks times blocks
    for one in (live(name, "cpu"), model):
        ctx = Context(one, **EXACT)
        ctx.encode(IDS[:20])
        start = one.architecture.start_token
        found.append(ctx.decode([start, *IDS[:9]], logits="all"))
    assert nmse(*found) <= CLOSE


@pytest.mark.parametrize("name", ["bert-dense", "llada-dense", "lfm2-centred"])
def test_models_that_encode(name: str) -> None:
    found = []
    for model in (live(name, "cpu"), shared(name, (1, 1))):
        ctx = Context(model, **EXACT, embeddings=True, pooling="mean")
        ctx.encode(Batch(IDS[:18], outputs=[True] * 18))
        found.append(ctx.embd_seq[0].copy())
    assert nmse(*found) <= CLOSE


def test_squares_of_whole_rows_are_needed() -> None:
    """Norms of queries and keys over all heads: a device alone has another length of its rows."""
    metadata, arrays = made("olmo2-windows", **HEADS)
    for key in arrays:
        if key.endswith(("attn_q.weight", "attn_k.weight")):
            arrays[key][: len(arrays[key]) // 2] *= 3
    one, two = model_of(metadata, arrays, "cpu"), model_of(metadata, arrays, placed((1, 1)))
    assert nmse(run(one), run(two)) <= CLOSE
    assert nmse(run(one), run(two, reduce_type="f16")) <= 1e-5
