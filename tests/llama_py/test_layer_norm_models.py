"""What tiny models of these do not show: it needs more layers, or fails in llama.cpp."""

from __future__ import annotations

import numpy as np
import pytest

from dev import tiny_models as tiny
from dev.tiny_models._invent import shapes
from llama_py.context import Context
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models import architecture
from tests.support.graph_models import load
from tests.support.live_models import EXACT, PROMPT, live, logits, made, model_of, nmse, random

SIZES = [(32, True, 0), (40, False, 8), (24, False, 0)]


@pytest.mark.parametrize(("n_layer", "rope", "bias"), SIZES)
def test_layers_say_what_positions_do(n_layer: int, rope: bool, bias: float) -> None:
    metadata, _ = made("baichuan-dense", block_count=n_layer)
    hp = architecture("baichuan").HParams(metadata, "baichuan")
    found = hp.layers[0].rope
    assert (found is not None and found.type == ROPE_NORMAL) == rope
    assert hp.max_alibi_bias == bias


def test_the_largest_command_r_has_norms_of_heads() -> None:
    for n_layer in (63, 64):
        keys = {**tiny.find("command-r", "dense").keys, "block_count": n_layer}
        found = shapes("command-r", tiny.Tiny(keys=keys))
        assert found.get("blk.63.attn_q_norm.weight") == ((16, 4, 1, 1) if n_layer == 64 else None)
        assert ("blk.0.attn_k_norm.weight" in found) == (n_layer == 64)


def test_rows_of_all_heads_are_normed() -> None:
    metadata, arrays = made("mpt-positions")
    for il in range(2):
        for x, n in (("q", 64), ("k", 32)):
            arrays[f"blk.{il}.attn_{x}_norm.weight"] = random(n)
            arrays[f"blk.{il}.attn_{x}_norm.bias"] = random(n)[::-1].copy()
    model = model_of(metadata, arrays)
    ctx = Context(model, **EXACT)
    with ctx.capture("wqkv_clamped-1", "kq_soft_max-1", "Qcur-1", "Kcur-1") as seen:
        ctx.decode(PROMPT, logits="all")
    rows = seen["wqkv_clamped-1"]
    assert abs(rows).max() == np.float32(1.5)
    sections = {"q": rows[:, :64], "k": rows[:, 64:96]}
    for x, row in sections.items():
        centred = row - row.mean(1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
        weight, bias = (arrays[f"blk.1.attn_{x}_norm.{part}"] for part in ("weight", "bias"))
        found = seen[f"{x.upper()}cur-1"].reshape(row.shape)
        np.testing.assert_allclose(found, normed * weight + bias, atol=1e-5)
    plain = logits(live("mpt-positions"))
    assert nmse(plain, logits(model)) > 1e-3


def test_experts_of_refact_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    load("refact-dense")
    assert "experts" not in caplog.text
    load("refact-moe")
    assert "experts are ignored" in caplog.text
