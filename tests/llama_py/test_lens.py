"""The logit lens: the model's own head, for any row of the residual stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError
from llama_py.context import Context
from llama_py.steering.lens import logit_lens
from tests.support.graph_models import NAMES
from tests.support.live_models import live, made, model_of, nmse, tokens

IDS = tokens(9)
# norms with and without a centre, softcaps, factors, biases, tied heads, layers of nothing
MODELS = [
    "llama-dense",
    "gemma2-dense",
    "gpt2-dense",
    "gpt2-untied",
    "qwen2-dense",
    "qwen35moe-moe",
    "kimi-linear-moe",
    "rwkv6-fused",
    "mamba-dense",
    "deci-mixed",
    "falcon-h1-dense",
    "lfm2-dense",
    "gpt-oss-moe",
    "stablelm-parallel",
]


@pytest.mark.parametrize("name", MODELS)
def test_the_last_layer_says_what_the_model_says(name: str) -> None:
    ctx = Context(live(name), n_ctx=32)
    last = max(n for n in live_layers(ctx) if n.startswith("l_out-"))
    with ctx.capture(last) as values:
        own = ctx.decode(IDS, "all")
    np.testing.assert_allclose(ctx.unembed(values[last]), own, atol=1e-5, rtol=1e-5)


def live_layers(ctx: Context) -> set[str]:
    with ctx.capture("l_out-*") as values:
        ctx.decode(IDS, "all")
    ctx.clear()
    return set(values)


@pytest.mark.parametrize("n", [7, 128])
def test_of_weights_that_are_quantized(n: int) -> None:
    """The demo's head of 8 bits; a few rows, and rows in several goes."""
    ctx = llama_py.load().context(n_ctx=128)
    with ctx.capture("l_out-3") as values:
        own = ctx.decode(tokens(n), "all")
    assert nmse(own, ctx.unembed(values["l_out-3"])) < 1e-6


def test_earlier_layers() -> None:
    """By the norm's and the head's weights, in NumPy."""
    metadata, arrays = made("llama-dense")
    ctx = Context(model_of(metadata, arrays, "ref"), n_ctx=32)
    with ctx.capture("blocks.1.hook_resid_mid") as values:
        ctx.decode(IDS, "all")
    x = values["blocks.1.hook_resid_mid"].astype(np.float64)
    eps = metadata["llama.attention.layer_norm_rms_epsilon"]
    x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + eps) * arrays["output_norm.weight"][0, 0]
    head: Any = arrays["token_embd.weight"][0, 0]
    np.testing.assert_allclose(
        ctx.unembed(values["blocks.1.hook_resid_mid"]), x @ head.T, atol=1e-4, rtol=1e-4
    )


def test_the_lens() -> None:
    ctx = llama_py.load().context(n_ctx=64, n_ubatch=4)
    lens = logit_lens(ctx, "First Citizen:\nBefore we proceed")
    n = len(lens.ids)
    assert list(lens.logits) == ["hook_embed", *(f"blocks.{i}.hook_resid_post" for i in range(4))]
    assert {x.shape for x in lens.logits.values()} == {(n, 2048)}
    assert nmse(lens.own, lens.logits["blocks.3.hook_resid_post"]) < 1e-4
    assert (lens.top(2)[-1, :, 0] == lens.own.argmax(-1)).all()
    kl = lens.kl_to_own().mean(-1)
    assert kl[-1] < 1e-3 < kl[1] < kl[0]
    np.testing.assert_allclose(lens.probabilities().sum(-1), 1)
    best = lens.top()[-1, :, 0]
    assert (lens.ranks(best)[-1] == 0).all() and lens.ranks(best)[0].any()
    first, *rows = str(lens).splitlines()
    assert first.split() == ["token", "embed", "0", "1", "2", "3"]
    assert len(rows) == n and all(len(row) == len(first) for row in rows)
    assert rows[0].split()[0] == "First"
    again = logit_lens(ctx, lens.ids, ["blocks.2.hook_resid_mid"])
    assert str(again).split()[:2] == ["token", "2.resid_mid"]


REFUSED = [
    ("llama-dense", np.zeros((2, 63)), "rows must have 64 elements, got 63"),
    ("llama-dense", np.zeros(64), r"got \(64,\)"),
    ("bert-dense", np.zeros((1, 64)), "no LM head"),
    ("gemma3n-few", np.zeros((1, 64)), "more inputs than one row"),
]


@pytest.mark.parametrize(("name", "rows", "message"), REFUSED)
def test_what_has_no_logits(name: str, rows: Any, message: str) -> None:
    assert name in NAMES
    with pytest.raises(ContextError, match=message):
        Context(live(name), n_ctx=32).unembed(rows)
